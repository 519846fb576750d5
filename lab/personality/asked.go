package personality

// fate is what happens to a COMMIT.
type fate int

const (
	plain fate = iota
	conflict
	uncertain
	lost
)

// request is a message of the client that has an answer of its own.
type request struct {
	kind    byte
	own     bool     // the proxy has sent it: the client does not see the answer
	refusal *Refusal // what the client gets as its error
	fates   []fate   // of the statements that it executes
}

// asked is what the server has not answered yet. It answers in order.
type asked struct{ queue []request }

func (a *asked) add(r request) { a.queue = append(a.queue, r) }

// head is the oldest of them.
func (a *asked) head() request {
	if len(a.queue) == 0 {
		return request{}
	}
	return a.queue[0]
}

// complete takes the oldest away.
func (a *asked) complete() request {
	head := a.head()
	if len(a.queue) > 0 {
		a.queue = a.queue[1:]
	}
	return head
}

// executed takes a statement away that was executed, and returns its fate.
func (a *asked) executed() fate {
	if len(a.queue) == 0 {
		return plain
	}
	head := &a.queue[0]
	f := plain
	if len(head.fates) > 0 {
		f, head.fates = head.fates[0], head.fates[1:]
	}
	if head.kind == 'E' {
		a.complete()
	}
	return f
}

// ready takes everything away up to what asked for ReadyForQuery: after an error, the server has skipped it.
func (a *asked) ready() {
	for len(a.queue) > 0 {
		if kind := a.complete().kind; kind == 'S' || kind == 'Q' {
			return
		}
	}
}
