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

// A person has accepted that what is behind the place at which the function fails stays as it is. The undo in front of it is tried again after a
// pause, in another run: the person is not asked a second time.
func TestAcceptedUndoThatIsTriedAgainAfterAPauseIsNotAskedForAgain(t *testing.T) {
	t.Parallel()
	for name, refusal := range map[string]error{"without an answer": errors.New("not now"), "not sent": operation.NotSent(errors.New("not now"))} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			var fails, refuses atomic.Bool
			refund := func(context.Context, string) error {
				if refuses.Load() {
					return refusal
				}
				return nil
			}
			d := operation.Define("mistaken", func(op *operation.Op, _ int) (idem.Response, error) {
				err := steps(
					func() error { return outsideStep(op, "charge") },
					func() error {
						return operation.Undo(op, "refund", operation.Keyed(time.Hour), refund, operation.Pauses(time.Minute, time.Minute))
					},
					func() error {
						if fails.Load() {
							return errors.New("a mistake of the program")
						}
						return localStep(op, "reserve")
					},
					func() error { return operation.Sleep(op, "cool-off", 24*time.Hour) })
				return created, err
			})
			state := func() string { return s.text(`select state from idem.operations`) }
			goOnUntil := func(is func() bool) {
				t.Helper()
				for range 20 {
					if is() {
						return
					}
					_, _ = s.pool.Exec(t.Context(), `update idem.operations set wake_at = clock_timestamp()`) // the pause is over
					_, _ = d.Do(t.Context(), s.pool, scope, "k", hashA, 0, idem.WithWait(0))
				}
				t.Fatalf("it is %s", s.text(`select state || ': ' || coalesce(reason, '') from idem.operations`))
			}
			cancel := func() {
				t.Helper()
				if err := operation.Cancel(t.Context(), s.pool, s.operationID()); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0, idem.WithWait(0)); !errors.Is(err, idem.ErrInProgress) {
				t.Fatal(err)
			}
			fails.Store(true)
			refuses.Store(true)
			cancel()
			goOnUntil(func() bool { return state() == "parked" })
			cancel()
			goOnUntil(func() bool { return s.text(`select undoing::text from idem.operations`) == "true" })
			refuses.Store(false)
			goOnUntil(func() bool { return state() != "running" })
			if got := s.text(`select o.state || ', ' || s.outcome from idem.operations o join idem.steps s on s.operation_id = o.id where s.name = 'refund'`); got != "undone, undone" {
				t.Errorf("it is %s", got)
			}
		})
	}
}
