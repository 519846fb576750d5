package personality

// fate is what the proxy does to a COMMIT.
type fate int

const (
	plain fate = iota
	conflict
	uncertain
	lost
)

// request is a client message that the server answers.
type request struct {
	kind    byte
	own     bool     // sent by the proxy itself; the client does not see the answer
	refusal *Refusal // the error that the client gets; nil if the message was not refused
	fates   []fate   // of the statements that the message executes
}

// asked is the queue of requests that the server has not answered. The server answers in order.
type asked struct{ queue []request }

func (a *asked) add(r request) { a.queue = append(a.queue, r) }

// head returns the oldest request, or the zero request if the queue is empty.
func (a *asked) head() request {
	if len(a.queue) == 0 {
		return request{}
	}
	return a.queue[0]
}

// complete removes and returns the oldest request.
func (a *asked) complete() request {
	head := a.head()
	if len(a.queue) > 0 {
		a.queue = a.queue[1:]
	}
	return head
}

// executed removes one executed statement from the oldest request and returns its fate.
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

// ready removes every request up to the Sync or Query that ReadyForQuery answers. After an error
// the server skips the requests in between.
func (a *asked) ready() {
	for len(a.queue) > 0 {
		if kind := a.complete().kind; kind == 'S' || kind == 'Q' {
			return
		}
	}
}
