package operation_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/operation"
)

// An approval has come, and what is behind the Await fails: the pauses between its runs grow as they do for any other function that fails.
func TestSignal_DoesNotEndALaterBackoff(t *testing.T) {
	t.Parallel()
	for name, late := range map[string]bool{"in time": false, "too late": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			runs := make(chan struct{}, 1000)
			d := operation.Define("approval", func(op *operation.Op, _ string) (idem.Response, error) {
				timeout := time.Hour
				if late {
					timeout = 0
				}
				if _, err := operation.Await[string](op, "approved", timeout); err != nil && !errors.Is(err, operation.ErrTimeout) {
					return idem.Response{}, err
				}
				runs <- struct{}{}
				return idem.Response{}, errors.New("a mistake of the program")
			})
			marker := s.checkout()
			id, err := s.start(d, "approval", hashA, true)
			if err != nil {
				t.Fatal(err)
			}
			s.work(t, d, marker)
			send := func() {
				t.Helper()
				if err := operation.Signal(t.Context(), s.pool, id, "approved", "yes"); err != nil {
					t.Fatal(err)
				}
			}
			if !late {
				eventually(t, "it to wait", func() bool { return s.count(`select count(*) from idem.steps where operation_id = $1`, id) == 1 })
				send()
			}
			await(t, "the first run behind the Await", runs)
			paused := func() bool { // a pause of which the test does not see the end
				return s.count(`with p as (update idem.operations set wake_at = clock_timestamp() + '1 hour'::interval
					where id = $1 and owner is null and wake_at > clock_timestamp() returning 1) select count(*) from p`, id) == 1
			}
			eventually(t, "its pause", paused)
			for len(runs) > 0 {
				<-runs
			}
			if late {
				send()
				eventually(t, "the run that sees the signal", func() bool { return len(runs) > 0 })
				eventually(t, "its pause", paused)
				for len(runs) > 0 {
					<-runs
				}
			}
			if due := s.count(`select count(*) from (`+dueOperations+`) due`, 10, "{approval}", "{}"); due != 0 {
				t.Error("Due lists it")
			}
			if _, err := d.Do(t.Context(), s.pool, scope, "approval", hashA, "book"); !errors.Is(err, idem.ErrInProgress) {
				t.Errorf("a caller: %v", err)
			}
			for i := range 3 { // looks of the worker
				if _, err := s.start(marker, fmt.Sprint("marker", i), hashA, true); err != nil {
					t.Fatal(err)
				}
				eventually(t, "another operation", s.completed(i+1))
			}
			if n := len(runs); n > 0 {
				t.Errorf("%d more runs during its pause", n)
			}
		})
	}
}

var dueOperations = db.DueOperationsSQL[:len(db.DueOperationsSQL)-1]
