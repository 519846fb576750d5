package operation_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/operation"
)

// mistaken is an operation with two calls that have an undo each, and a Tx in front of which its function may fail.
type mistaken struct {
	*shop
	fails    atomic.Int32 // in front of the step of that number: 0 for none
	refuses  atomic.Pointer[error]
	leave    atomic.Pointer[context.CancelFunc] // of the caller, once the deposit is returned
	tried    atomic.Int32                       // undos
	returned atomic.Int32                       // of the deposit
	pledged  atomic.Int32                       // what is behind the place at which it fails, taken back
}

func newMistaken(t *testing.T) *mistaken { return &mistaken{shop: newShop(t)} }

func (m *mistaken) code() *operation.Definition[int] {
	undo := func(count *atomic.Int32) func(context.Context, string) error {
		return func(context.Context, string) error {
			m.tried.Add(1)
			if refusal := m.refuses.Load(); refusal != nil {
				return *refusal
			}
			count.Add(1)
			if leave := m.leave.Load(); leave != nil && count == &m.returned {
				(*leave)()
			}
			return nil
		}
	}
	var refunded atomic.Int32
	return operation.Define("mistaken", func(op *operation.Op, _ int) (idem.Response, error) {
		seq := int32(0)
		step := func(take func() error) func() error {
			return func() error {
				if seq++; seq == m.fails.Load() {
					return errors.New("a mistake of the program")
				}
				return take()
			}
		}
		undone := func(name string, count *atomic.Int32) func() error {
			return step(func() error {
				return operation.Undo(op, name, operation.Keyed(time.Hour), undo(count), operation.Pauses(time.Minute, time.Minute))
			})
		}
		call := func(name string) func() error { return step(func() error { return outsideStep(op, name) }) }
		err := steps(
			call("charge"), undone("refund", &refunded),
			call("deposit"), undone("return", &m.returned),
			call("pledge"), undone("redeem", &m.pledged),
			func() error { return operation.Sleep(op, "cool-off", 24*time.Hour) })
		return created, err
	})
}

func (m *mistaken) state() string { return m.text(`select state from idem.operations`) }

// begin has the operation come to its pause.
func (m *mistaken) begin(t *testing.T) {
	t.Helper()
	if _, err := m.code().Do(t.Context(), m.pool, scope, "k", hashA, 0, idem.WithWait(0)); !errors.Is(err, idem.ErrInProgress) {
		t.Fatal(err)
	}
}

// goOnUntil has callers go on, each pause being over.
func (m *mistaken) goOnUntil(t *testing.T, is func() bool) {
	t.Helper()
	for range 20 {
		if is() {
			return
		}
		_, _ = m.pool.Exec(t.Context(), `update idem.operations set wake_at = clock_timestamp()`)
		ctx, leave := context.WithCancel(t.Context())
		if m.leave.Load() != nil {
			m.leave.Store(&leave)
		}
		_, _ = m.code().Do(ctx, m.pool, scope, "k", hashA, 0, idem.WithWait(0))
		leave()
	}
	t.Fatalf("it is %s", m.text(`select state || ': ' || coalesce(reason, '') from idem.operations`))
}

func (m *mistaken) cancel(t *testing.T) {
	t.Helper()
	if err := operation.Cancel(t.Context(), m.pool, m.operationID()); err != nil {
		t.Fatal(err)
	}
}

// accept has the function fail in front of a step, and a person accept that what is on record from there on stays as it is.
func (m *mistaken) accept(t *testing.T, seq int32) {
	t.Helper()
	m.fails.Store(seq)
	m.cancel(t)
	m.goOnUntil(t, func() bool { return m.state() == "parked" })
	m.cancel(t)
}

func (m *mistaken) ended() bool { return m.state() != "running" }

// outcomes are the state of the operation and the outcomes of its undos, in their order.
func (m *mistaken) outcomes() string {
	return m.text(`select o.state || ': ' || string_agg(s.outcome, ', ' order by s.seq) from idem.operations o join idem.steps s on s.operation_id = o.id
		where s.kind = 'undo' group by o.state`)
}

// A person has accepted that what is behind the place at which the function fails stays as it is. The undo in front of it is tried again after a
// pause, in another run: the person is not asked a second time.
func TestAcceptedUndoThatIsTriedAgainAfterAPauseIsNotAskedForAgain(t *testing.T) {
	t.Parallel()
	for name, refusal := range map[string]error{"without an answer": errors.New("not now"), "not sent": operation.NotSent(errors.New("not now"))} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMistaken(t)
			m.begin(t)
			m.refuses.Store(&refusal)
			m.accept(t, 5)
			m.goOnUntil(t, func() bool { return m.tried.Load() > 0 })
			m.refuses.Store(nil)
			m.goOnUntil(t, m.ended)
			if got := m.outcomes(); got != "undone: undone, undone, registered" {
				t.Errorf("it is %s", got)
			}
		})
	}
}

// The caller leaves when one of two undos is done, and the other is not begun.
func TestAcceptedUndoOfWhichOnePartIsDoneIsNotAskedForAgain(t *testing.T) {
	t.Parallel()
	m := newMistaken(t)
	m.begin(t)
	m.leave.Store(new(context.CancelFunc))
	m.accept(t, 5)
	m.goOnUntil(t, func() bool { return m.returned.Load() > 0 })
	if got := m.outcomes(); got != "running: registered, undone, registered" {
		t.Fatalf("when its caller has left it is %s", got)
	}
	m.leave.Store(nil)
	m.goOnUntil(t, m.ended)
	if got := m.outcomes(); got != "undone: undone, undone, registered" {
		t.Errorf("it is %s: %s", got, m.text(`select coalesce(reason, '') from idem.operations`))
	}
}

// What a person has accepted to be left as it is, the person may have taken back by hand: its undo is not run, though the function has come to
// it again.
func TestWhatAPersonLeavesAsItIsIsNotUndoneWhenTheFunctionWorksAgain(t *testing.T) {
	t.Parallel()
	m := newMistaken(t)
	m.begin(t)
	m.accept(t, 5)
	m.fails.Store(0)
	m.goOnUntil(t, m.ended)
	if got := m.outcomes(); got != "undone: undone, undone, registered" || m.pledged.Load() != 0 {
		t.Errorf("it is %s", got)
	}
}

// A function that fails earlier than where a person has accepted that leaves out what the person was not asked about.
func TestFunctionThatFailsEarlierThanAPersonHasAcceptedIsAskedForAgain(t *testing.T) {
	t.Parallel()
	m := newMistaken(t)
	m.begin(t)
	m.accept(t, 5)
	m.fails.Store(3)
	m.goOnUntil(t, m.ended)
	if got := m.outcomes(); got != "parked: registered, registered, registered" {
		t.Fatalf("it is %s", got)
	}
	if err := operation.Retry(t.Context(), m.pool, m.operationID()); err != nil {
		t.Fatal(err)
	}
	m.fails.Store(0)
	m.goOnUntil(t, m.ended)
	if got := m.outcomes(); got != "undone: undone, undone, registered" {
		t.Errorf("it is %s", got)
	}
}
