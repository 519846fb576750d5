package pgproxy

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgproto3"
)

// dialogue knows what the client has asked and the server has not answered yet. The protocol answers strictly in order,
// so that a queue is all it takes to tell which statement an answer belongs to.
type dialogue struct {
	pid      atomic.Uint32
	counters counters
	total    *counters // of the proxy

	mu      sync.Mutex
	started bool // authentication is over
	asked   []*request
	waits   int  // answers that the client is waiting for and has not been sent
	copying bool // the server takes COPY data for the Execute at the head of the queue
}

// request is a client's message that has an answer, or that changes the answer to others.
type request struct {
	kind byte
	runs []*run // statements still to be answered
}

// run is one execution of a statement.
type run struct {
	Statement
	trap *Trap // has taken hold of the statement and waits for its answer
	lost bool  // nobody will get the answer: the connection is about to be cut
}

// ends reports whether a client waits for what the server answers to a message of this kind.
func ends(kind byte) bool { return isSync(kind) || kind == msgFlush }

// isSync reports whether the server answers a message of this kind by ReadyForQuery.
func isSync(kind byte) bool { return kind == msgSync || kind == msgQuery || kind == msgFunctionCall }

// answer is what a message of the server means.
type answer struct {
	run   *run // it completes this statement
	tag   string
	code  string
	waits int // and as many waits of the client
}

func (d *dialogue) isStarted() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.started
}

// ask records a message that goes to the server.
func (d *dialogue) ask(kind byte, runs []*run) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch kind {
	case msgParse, msgBind, msgDescribe, msgExecute, msgClose, msgCopyDone, msgCopyFail:
	case msgSync, msgQuery, msgFunctionCall:
		d.count(func(c *counters) *atomic.Int64 { return &c.syncs }, 1)
	case msgFlush:
		if d.head() == nil || ends(d.asked[len(d.asked)-1].kind) {
			return
		}
	default:
		return
	}
	d.asked = append(d.asked, &request{kind, runs})
	d.count(func(c *counters) *atomic.Int64 { return &c.statements }, len(runs))
	if !ends(kind) {
		return
	}
	if d.waits == 0 {
		d.count(func(c *counters) *atomic.Int64 { return &c.turns }, 1)
	}
	d.waits++
}

func (d *dialogue) count(which func(*counters) *atomic.Int64, n int) {
	which(&d.counters).Add(int64(n))
	which(d.total).Add(int64(n))
}

// answered is called before the client is sent what ends n of its waits: whatever it sends next, it may have waited.
func (d *dialogue) answered(n int) {
	if n == 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.waits -= n
}

// trapped reports whether the next message from the server is about a statement whose answer may not be forwarded.
func (d *dialogue) trapped() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	head := d.head()
	return head != nil && len(head.runs) > 0 && (head.runs[0].trap != nil || head.runs[0].lost)
}

// hear records a message of the server and says what it answers.
func (d *dialogue) hear(m message) (answer, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.started {
		return answer{}, d.start(m)
	}
	var a answer
	var err error
	head := d.head()
	switch {
	case m.kind() == msgReadyForQuery:
		err = d.ready(&a)
	case m.kind() == msgErrorResponse:
		err = d.fail(&a, m)
	case head == nil:
	case m.kind() == msgCopyInResponse:
		d.copying = head.kind == msgExecute
	case completes(head.kind, m.kind()):
		err = d.complete(&a, m)
	}
	for d.head() != nil && d.head().kind == msgFlush {
		d.pop(&a)
	}
	return a, err
}

// start waits for the end of authentication.
func (d *dialogue) start(m message) error {
	switch m.kind() {
	case msgBackendKeyData:
		var key pgproto3.BackendKeyData
		if err := key.Decode(m.body()); err != nil {
			return err
		}
		d.pid.Store(key.ProcessID)
	case msgReadyForQuery:
		d.started = true
	}
	return nil
}

// completes reports whether an answer is the last one to a request, or to one of its statements.
func completes(request, answer byte) bool {
	switch request {
	case msgParse:
		return answer == msgParseComplete
	case msgBind:
		return answer == msgBindComplete
	case msgClose:
		return answer == msgCloseComplete
	case msgDescribe:
		return answer == msgRowDescription || answer == msgNoData
	case msgExecute, msgQuery:
		return answer == msgCommandComplete || answer == msgEmptyQuery || answer == msgPortalSuspended
	}
	return false
}

// complete takes the request or the statement that m answers from the head of the queue.
func (d *dialogue) complete(a *answer, m message) error {
	head := d.head()
	if m.kind() == msgCommandComplete {
		var done pgproto3.CommandComplete
		if err := done.Decode(m.body()); err != nil {
			return err
		}
		a.tag = string(done.CommandTag)
	}
	if len(head.runs) > 0 {
		a.run, head.runs = head.runs[0], head.runs[1:]
	}
	if head.kind == msgQuery {
		return nil // ReadyForQuery completes it
	}
	d.pop(a)
	if d.copying {
		d.endCopy(a)
	}
	return nil
}

// fail records an error. It belongs to the first statement that is not complete; what else the client asked up to its
// next Sync, the server skips.
func (d *dialogue) fail(a *answer, m message) error {
	var failure pgproto3.ErrorResponse
	if err := failure.Decode(m.body()); err != nil {
		return err
	}
	a.code = failure.Code
	for head := d.head(); head != nil && head.kind != msgSync; head = d.head() {
		if a.run == nil && len(head.runs) > 0 {
			a.run, head.runs = head.runs[0], head.runs[1:]
		}
		head.skip()
		if isSync(head.kind) {
			break
		}
		d.pop(a)
		if d.copying {
			d.endCopy(a)
		}
	}
	return nil
}

// endCopy forgets the Syncs that the server has ignored because they came among COPY data: they get no answer.
func (d *dialogue) endCopy(a *answer) {
	d.copying = false
	for len(d.asked) > 0 {
		kind := d.asked[0].kind
		d.pop(a)
		if kind == msgCopyDone || kind == msgCopyFail {
			return
		}
	}
}

// ready completes everything up to the message that asked for ReadyForQuery.
func (d *dialogue) ready(a *answer) error {
	for len(d.asked) > 0 {
		kind := d.asked[0].kind
		d.pop(a)
		if isSync(kind) {
			return nil
		}
	}
	return errors.New("a ReadyForQuery that nobody asked for")
}

// head is the oldest request that the server has not answered. The end of COPY data has no answer of its own.
func (d *dialogue) head() *request {
	for len(d.asked) > 0 {
		if kind := d.asked[0].kind; kind != msgCopyDone && kind != msgCopyFail {
			return d.asked[0]
		}
		d.asked = d.asked[1:]
	}
	return nil
}

func (d *dialogue) pop(a *answer) {
	first := d.asked[0]
	d.asked = d.asked[1:]
	first.skip()
	if ends(first.kind) {
		a.waits++
	}
}

// abandon frees the traps that wait for an answer when the connection is over.
func (d *dialogue) abandon() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range d.asked {
		r.skip()
	}
}

// skip frees the traps of statements that will not be executed.
func (r *request) skip() {
	for _, run := range r.runs {
		run.trap.giveBack()
	}
	r.runs = nil
}
