package pgproxy

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgproto3"
)

// dialogue tracks the requests that the client has sent and the server has not answered. The
// protocol answers requests strictly in order, so a queue is enough to find the statement that an
// answer belongs to.
type dialogue struct {
	pid      atomic.Uint32
	counters counters
	total    *counters // the counters of the proxy

	mu      sync.Mutex
	started bool // authentication has ended
	asked   []*request
	waits   int  // answers that the client waits for and that have not been forwarded
	copying bool // the server reads COPY data for the Execute at the head of asked
}

// request is a client message that the server answers, or that affects the answer to other
// messages.
type request struct {
	kind byte
	runs []*run // statements that the server has not answered
}

// run is one execution of a statement.
type run struct {
	Statement
	trap *Trap // the trap that caught the statement and waits for its answer, or nil
	lost bool  // the answer is dropped, because the connection is about to be cut
}

// ends reports whether the client waits for the server after a message of this kind.
func ends(kind byte) bool { return isSync(kind) || kind == msgFlush }

// isSync reports whether the server answers a message of this kind with ReadyForQuery.
func isSync(kind byte) bool { return kind == msgSync || kind == msgQuery || kind == msgFunctionCall }

// answer describes what a server message completes.
type answer struct {
	run   *run // the statement that the message completes, or nil
	tag   string
	code  string
	waits int // how many waits of the client the message ends
}

func (d *dialogue) isStarted() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.started
}

// ask records a message that is forwarded to the server, and counts it.
func (d *dialogue) ask(kind byte, runs []*run) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch kind {
	case msgParse, msgBind, msgDescribe, msgExecute, msgClose, msgCopyDone, msgCopyFail:
	case msgSync, msgQuery, msgFunctionCall:
		d.count(func(c *counters) *atomic.Int64 { return &c.syncs }, 1)
	// A Flush with nothing to flush gets no answer.
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
	// The client waits from now on. This is a new turn unless the client was already waiting.
}

func (d *dialogue) count(which func(*counters) *atomic.Int64, n int) {
	which(&d.counters).Add(int64(n))
	which(d.total).Add(int64(n))
}

// answered records the end of n waits of the client. The proxy calls it before it writes the
// answers to the client: the client may have waited for them before it sends its next message.
func (d *dialogue) answered(n int) {
	if n == 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.waits -= n
}

// trapped reports whether the next server message belongs to a statement whose answer must not be
// forwarded yet.
func (d *dialogue) trapped() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	head := d.head()
	return head != nil && len(head.runs) > 0 && (head.runs[0].trap != nil || head.runs[0].lost)
}

// hear records a server message and returns what the message completes.
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
		// The server does not answer a Flush with a message. A Flush is complete as soon as
		// everything in front of it has been answered.
		d.copying = head.kind == msgExecute
	case completes(head.kind, m.kind()):
		err = d.complete(&a, m)
	}
	for d.head() != nil && d.head().kind == msgFlush {
		d.pop(&a)
	}
	return a, err
}

// start follows the startup phase up to its end, which is the first ReadyForQuery.
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

// completes reports whether answer is the last message that the server sends for a request, or for
// one statement of a Query.
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

// complete removes what m completes from the head of the queue: the request, or one statement of a
// Query.
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
		return nil // ReadyForQuery completes the Query
	}
	d.pop(a)
	if d.copying {
		d.endCopy(a)
	}
	return nil
}

// fail records an ErrorResponse. The error belongs to the first statement that is not complete. The
// server skips everything behind it up to the next Sync, so fail removes those requests.
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
		// A simple Query is its own Sync: ReadyForQuery follows, and ready removes the Query.
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

// endCopy removes the requests up to CopyDone or CopyFail. The server ignores a Sync that arrives
// among COPY data, and never answers it.
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

// ready removes every request up to the one that asked for ReadyForQuery.
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

// head returns the oldest request that the server has not answered, or nil. It drops CopyDone and
// CopyFail, which have no answer of their own.
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

// abandon frees the traps that wait for an answer. It is called when the connection is over.
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
