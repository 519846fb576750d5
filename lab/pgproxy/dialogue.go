package pgproxy

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/idem-go/idem/internal/pgwire"
)

// dialogue tracks the requests of the client that the server has not answered. The server answers
// requests strictly in order, so a queue is enough to find the statement to which an answer
// belongs.
//
// Known limit: a COPY FROM STDIN must be sent as a simple Query, as pgx does. With Execute, the
// server ignores a Sync among the data, and dialogue would still expect an answer to it.
type dialogue struct {
	turns *atomic.Int64 // the number of round trips of all connections, for Proxy.Tally

	mu      sync.Mutex
	started bool // authentication has ended
	asked   []*request
	waits   int // answers that the client waits for and that the proxy has not forwarded
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
	lost bool  // the answer is not forwarded, because the connection is about to be cut
}

// ends reports whether the client waits for an answer after a message of this kind.
func ends(kind byte) bool { return isSync(kind) || kind == pgwire.Flush }

// isSync reports whether the server answers a message of this kind with ReadyForQuery.
func isSync(kind byte) bool {
	return kind == pgwire.Sync || kind == pgwire.Query || kind == pgwire.FunctionCall
}

// answer describes what a server message completes.
type answer struct {
	run   *run // the statement that the message completes, or nil
	tag   string
	code  string
	waits int // number of awaited answers that the message completes
}

func (d *dialogue) isStarted() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.started
}

// ask records a message that is forwarded to the server. If the client begins to wait for an answer
// with this message, ask counts a turn, which is a network round trip.
func (d *dialogue) ask(kind byte, runs []*run) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch kind {
	case pgwire.Parse, pgwire.Bind, pgwire.Describe, pgwire.Execute, pgwire.Close,
		pgwire.Sync, pgwire.Query, pgwire.FunctionCall:
	// A Flush with nothing to flush gets no answer, so it is not recorded.
	case pgwire.Flush:
		if d.head() == nil || ends(d.asked[len(d.asked)-1].kind) {
			return
		}
	default:
		return
	}
	d.asked = append(d.asked, &request{kind, runs})
	if !ends(kind) {
		return
	}
	// The client waits from now on. This is a new turn unless the client was already waiting.
	if d.waits == 0 {
		d.turns.Add(1)
	}
	d.waits++
}

// answered records that the client stops waiting for n answers. The proxy calls it before it writes
// the answers to the client, because the client may send its next message as soon as it has them.
func (d *dialogue) answered(n int) {
	if n == 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.waits -= n
}

// trapped reports whether the next server message belongs to a statement whose answer must be held
// back or dropped.
func (d *dialogue) trapped() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	head := d.head()
	return head != nil && len(head.runs) > 0 && (head.runs[0].trap != nil || head.runs[0].lost)
}

// hear records a server message and returns what the message completes.
func (d *dialogue) hear(m pgwire.Message) (answer, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.started {
		d.started = m.Kind() == pgwire.ReadyForQuery // the end of the startup phase
		return answer{}, nil
	}
	var a answer
	var err error
	head := d.head()
	switch {
	case m.Kind() == pgwire.ReadyForQuery:
		err = d.ready(&a)
	case m.Kind() == pgwire.ErrorResponse:
		err = d.fail(&a, m)
	case head == nil:
	case completes(head.kind, m.Kind()):
		err = d.complete(&a, m)
	}
	// The server sends no message for a Flush. A Flush is complete as soon as everything before it
	// has been answered.
	for d.head() != nil && d.head().kind == pgwire.Flush {
		d.pop(&a)
	}
	return a, err
}

// completes reports whether answer is the last message that the server sends for a request, or for
// one statement of a Query.
func completes(request, answer byte) bool {
	switch request {
	case pgwire.Parse:
		return answer == pgwire.ParseComplete
	case pgwire.Bind:
		return answer == pgwire.BindComplete
	case pgwire.Close:
		return answer == pgwire.CloseComplete
	case pgwire.Describe:
		return answer == pgwire.RowDescription || answer == pgwire.NoData
	case pgwire.Execute, pgwire.Query:
		return answer == pgwire.CommandComplete || answer == pgwire.EmptyQuery || answer == pgwire.PortalSuspended
	}
	return false
}

// complete removes from the head of the queue what m completes: a whole request, or one statement
// of a Query.
func (d *dialogue) complete(a *answer, m pgwire.Message) error {
	head := d.head()
	if m.Kind() == pgwire.CommandComplete {
		var done pgproto3.CommandComplete
		if err := done.Decode(m.Body()); err != nil {
			return err
		}
		a.tag = string(done.CommandTag)
	}
	if len(head.runs) > 0 {
		a.run, head.runs = head.runs[0], head.runs[1:]
	}
	if head.kind == pgwire.Query {
		return nil // ReadyForQuery completes the Query
	}
	d.pop(a)
	return nil
}

// fail records an ErrorResponse. The error belongs to the first statement that is not complete. The
// server skips all requests after the failed one up to the next Sync, so fail removes them.
func (d *dialogue) fail(a *answer, m pgwire.Message) error {
	var failure pgproto3.ErrorResponse
	if err := failure.Decode(m.Body()); err != nil {
		return err
	}
	a.code = failure.Code
	for head := d.head(); head != nil && head.kind != pgwire.Sync; head = d.head() {
		if a.run == nil && len(head.runs) > 0 {
			a.run, head.runs = head.runs[0], head.runs[1:]
		}
		head.skip()
		// A simple Query is its own Sync: ReadyForQuery follows, and ready removes the Query.
		if isSync(head.kind) {
			break
		}
		d.pop(a)
	}
	return nil
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

// head returns the oldest request that the server has not answered, or nil.
func (d *dialogue) head() *request {
	if len(d.asked) == 0 {
		return nil
	}
	return d.asked[0]
}

func (d *dialogue) pop(a *answer) {
	first := d.asked[0]
	d.asked = d.asked[1:]
	first.skip()
	if ends(first.kind) {
		a.waits++
	}
}

// abandon frees the traps that wait for an answer. It is called when the connection has ended.
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
