// Package checkout is the program of a worker process in a run of operations. It calls operations
// under keys that other processes call too, runs a Worker that finishes what other processes left,
// and sends signals. It has no knowledge of the faults and judges nothing: it logs what it did and
// which answers it got.
package checkout

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/torture/bank"
	"github.com/idem-go/idem/lab/torture/config"
	"github.com/idem-go/idem/lab/torture/history"
	"github.com/idem-go/idem/lab/torture/journal"
	"github.com/idem-go/idem/lab/torture/unreliable"
	"github.com/idem-go/idem/operation"
)

// shop is the state of a worker process that runs operations.
type shop struct {
	*config.Config
	calm    bool // inject no failures
	release int  // release of the code
	pools   []*pgxpool.Pool
	pool    *pgxpool.Pool // the pool that the Worker uses
	bank    *unreliable.Client
	history *history.Writer
	numbers atomic.Uint32 // counts calls and runs

	checkout *operation.Definition[journal.Plan]
	walkIn   *operation.Definition[journal.Plan] // the Worker does not have it until finishAll, so only callers execute it
	part     *operation.Definition[journal.Plan] // definition of child operations
	recent   recent
}

func (s *shop) define() {
	// The function recognizes these errors by more than their text and fields, so the library must
	// know them.
	known := operation.WithErrors(errNoFunds, &codeError{}, &softDecline{}, &opaqueDecline{})
	s.checkout = operation.Define("checkout", s.run, known)
	s.walkIn = operation.Define("walk-in", s.run, known)
	s.part = operation.Define("part", s.run, known)
}

func (s *shop) definitionOf(p *journal.Plan) *operation.Definition[journal.Plan] {
	if p.WalkIn {
		return s.walkIn
	}
	return s.checkout
}

// next returns an identifier for a call or a run.
func (s *shop) next() history.Op { return s.Op(s.numbers.Add(1)) }

func (s *shop) note(e journal.Event) {
	e.At, e.Pooled = history.Now(), s.Pooled
	s.history.Append(e)
}

// running is one run of the function of an operation.
type running struct {
	*shop
	*operation.Op
	name   history.Op
	values map[string]string // results of the steps
	paid   map[string]string // receipts, by what they pay for
}

const uniqueViolation = "23505"

var (
	errFinal = errors.New("the function ends in an error, as planned")
	errFlaky = errors.New("the function fails for once")
)

// run is the function of the operation. It logs its begin and its end, and whether it failed with
// an error that does not end the operation.
func (s *shop) run(op *operation.Op, in journal.Plan) (resp idem.Response, err error) {
	r := &running{shop: s, Op: op, name: s.next(), values: map[string]string{}, paid: map[string]string{}}
	s.recent.add(op.ID())
	by, _ := op.Context().Value(callName{}).(history.Op)
	s.note(journal.Event{Kind: journal.KindBegin, Op: r.name, Operation: op.ID(), By: by})
	failed := true
	defer func() {
		left := op.Context().Err() != nil
		s.note(journal.Event{Kind: journal.KindEnd, Op: r.name, Operation: op.ID(), Left: left, Failed: failed && !left})
	}()
	resp, err = r.do(&in)
	violated, ok := errors.AsType[*pgconn.PgError](err)
	failed = errors.Is(err, errFlaky) || ok && violated.Code == uniqueViolation
	return resp, err
}

func (r *running) do(in *journal.Plan) (idem.Response, error) {
	for i := range in.Rounds {
		if err := r.round(in, &in.Rounds[i], i+1); err != nil {
			return idem.Response{}, r.outcome(err)
		}
	}
	switch in.End {
	case journal.Reject:
		return idem.Response{}, idem.Reject(r.response(422))
	case journal.Final:
		return idem.Response{}, operation.Final(errFinal)
	}
	return r.response(201), nil
}

// outcome converts the error of a step into the error of the operation: a declined charge rejects.
func (r *running) outcome(err error) error {
	if errors.Is(err, bank.ErrDeclined) {
		return idem.Reject(r.response(402))
	}
	return err
}

func (r *running) response(status int) idem.Response {
	body, err := json.Marshal(journal.Answer{Operation: r.ID(), Rejected: status >= 400, Values: r.values, Paid: r.paid})
	if err != nil {
		panic(err)
	}
	return idem.Response{Status: status, Body: body}
}

func (r *running) round(in *journal.Plan, round *journal.Round, n int) error {
	for _, part := range []func() error{
		func() error { return r.leave(in, round, n, journal.Front) },
		func() error { return r.reserve(round, n, false) },
		func() error { return r.putIn(round, n) },
		func() error { return r.leave(in, round, n, journal.Between) },
		func() error { return r.charge(in, round, n) },
		func() error { return r.trouble(round, n) },
		func() error { return r.reserve(round, n, true) },
		func() error { return r.leave(in, round, n, journal.Behind) },
		func() error { return r.count(round, n) },
		r.stumble,
		func() error { return r.pause(round, n) },
	} {
		if err := part(); err != nil {
			return err
		}
	}
	return nil
}

// write inserts the row of a Tx or of an undo, and returns a nonce that is unique for every
// attempt.
func (r *running) write(tx pgx.Tx, step, given string) (string, error) {
	nonce := fmt.Sprintf("%v/%d", r.next(), rand.Uint64())
	_, err := tx.Exec(r.Context(), "INSERT INTO torture.steps VALUES ($1::text::uuid, $2::text, $3::text, $4::int8, $5::text)",
		r.ID(), step, nonce, int64(history.Now()), given)
	return nonce, err
}

// stumble makes the function fail, panic, or commit a checkpoint now and then.
func (r *running) stumble() error {
	switch n := rand.IntN(200); {
	case r.calm:
	case n < 3:
		return errFlaky
	case n < 4:
		panic(errFlaky)
	case n < 10:
		return r.Checkpoint()
	}
	return nil
}

// pause executes the pause of the round. For an Await, it sends the signal at about the time at
// which the operation looks for it.
func (r *running) pause(round *journal.Round, n int) error {
	name := round.Wait(n)
	switch round.Pause {
	case journal.Sleep:
		return operation.Sleep(r.Op, name, round.For)
	case journal.Await, journal.Silence:
		if round.Pause == journal.Await {
			go r.signal(r.ID(), name, time.Duration(rand.IntN(6000))*time.Microsecond)
		}
		value, err := operation.Await[string](r.Op, name, round.For)
		if errors.Is(err, operation.ErrTimeout) {
			value, err = "timeout", nil
		}
		r.values[name] = value
		return err
	}
	return nil
}

// signal sends a signal after a delay. It retries until the operation exists, and logs when the
// signal was acknowledged.
func (s *shop) signal(id, name string, after time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	value := fmt.Sprint(s.next())
	time.Sleep(after)
	for {
		err := operation.Signal(ctx, s.pool, id, name, value)
		if err == nil {
			break
		}
		if !errors.Is(err, operation.ErrUnknownOperation) || ctx.Err() != nil {
			return
		}
		time.Sleep(2 * time.Millisecond)
	}
	var wall int64
	const now = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::int8"
	if s.pool.QueryRow(ctx, now).Scan(&wall) == nil {
		s.note(journal.Event{Kind: journal.KindSignal, Operation: id, Name: name, Wall: wall})
	}
}

// recent has the ids of the last operations that this process ran.
type recent struct {
	mu  sync.Mutex
	ids []string
}

func (r *recent) add(id string) {
	const most = 16
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ids = append(r.ids, id)
	r.ids = r.ids[max(len(r.ids)-most, 0):]
}

// one returns a random id, or "" if there is none.
func (r *recent) one() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.ids) == 0 {
		return ""
	}
	return r.ids[rand.IntN(len(r.ids))]
}
