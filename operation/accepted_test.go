package operation_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/operation"
)

// A person has accepted that nothing takes one call back. The function fails then, in front of what has an undo: that is another question.
func TestAcceptingThatACallIsNotTakenBackLeavesOutNoUndoOfOthers(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	var fails atomic.Bool
	d := operation.Define("mistaken", func(op *operation.Op, _ int) (idem.Response, error) {
		if fails.Load() {
			return idem.Response{}, errors.New("a mistake of the program")
		}
		err := steps(
			func() error { return localStep(op, "reserve") },
			func() error { return outsideStep(op, "charge") },
			func() error { return operation.UndoTx(op, "refund", writeUndo("refund")) },
			func() error { return outsideStep(op, "check") },
			func() error { return operation.Sleep(op, "cool-off", 24*time.Hour) })
		return created, err
	})
	goOn := func() {
		t.Helper()
		for i := 0; s.text(`select state from idem.operations`) == "running" && i < 20; i++ {
			_, _ = s.pool.Exec(t.Context(), `update idem.operations set wake_at = clock_timestamp()`) // the pause is over
			_, _ = d.Do(t.Context(), s.pool, scope, "k", hashA, 0, idem.WithWait(0))
		}
	}
	wantParked := func(reason string) {
		t.Helper()
		goOn()
		if got := s.text(`select state || ': ' || coalesce(reason, '') from idem.operations`); !strings.HasPrefix(got, "parked: ") || !strings.Contains(got, reason) {
			t.Fatalf("it is %s", got)
		}
	}
	if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0, idem.WithWait(0)); !errors.Is(err, idem.ErrInProgress) {
		t.Fatal(err)
	}
	id := s.operationID()
	if err := operation.Cancel(t.Context(), s.pool, id); err != nil {
		t.Fatal(err)
	}
	wantParked(`call "check" has happened, which no undo takes back`)
	if err := operation.Cancel(t.Context(), s.pool, id); err != nil {
		t.Fatal(err)
	}
	fails.Store(true)
	wantParked(`before it asks for step "reserve", which is recorded`)
	fails.Store(false)
	if err := operation.Retry(t.Context(), s.pool, id); err != nil {
		t.Fatal(err)
	}
	goOn()
	if diff := cmp.Diff([]string{"reserve", "refund"}, s.did()); diff != "" || s.text(`select state from idem.operations`) != "undone" {
		t.Errorf("(-want +committed):\n%s", diff)
	}
}

// A person is asked whether a call that nothing takes back stays as it is, has the operation go on with other code instead, and cancels it again
// where that has parked it for a reason of its own: of the call nothing was accepted.
func TestCancelOfWhatIsParkedForAnotherReasonAcceptsNothing(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	charge := "charge"
	d := operation.Define("renamed", func(op *operation.Op, _ int) (idem.Response, error) {
		return created, steps(
			func() error { return outsideStep(op, charge) },
			func() error { return operation.Sleep(op, "cool-off", 24*time.Hour) })
	})
	parkedFor := func(reason string) {
		t.Helper()
		_, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0, idem.WithWait(0))
		if parked := (*operation.ParkedError)(nil); !errors.As(err, &parked) || !strings.Contains(parked.Reason, reason) {
			t.Fatalf("%v", err)
		}
	}
	if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0, idem.WithWait(0)); !errors.Is(err, idem.ErrInProgress) {
		t.Fatal(err)
	}
	id := s.operationID()
	cancel := func() {
		t.Helper()
		if err := operation.Cancel(t.Context(), s.pool, id); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	parkedFor("no undo takes back")
	charge = "pay"
	if err := operation.Retry(t.Context(), s.pool, id); err != nil {
		t.Fatal(err)
	}
	parkedFor("the code has changed")
	cancel()
	charge = "charge"
	parkedFor("no undo takes back")
}
