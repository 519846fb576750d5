package operation_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/operation"
)

// elapse makes what is to come in a day due now: as a clock does that jumps.
func (s *shop) elapse() {
	s.t.Helper()
	const day = ` - interval '1 day'`
	// Both at once: a worker that saw the first alone would put the operation to sleep anew, until a moment that is not moved any more.
	err := pgx.BeginFunc(context.Background(), s.pool, func(tx pgx.Tx) error {
		for _, sql := range []string{
			`update idem.operations set wake_at = wake_at` + day + `, since = since` + day,
			`update idem.steps set due_at = due_at` + day,
		} {
			if _, err := tx.Exec(context.Background(), sql); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

// isFree reports whether an operation is one that waits, and that no process holds.
func (s *shop) isFree(step string) bool {
	s.t.Helper()
	return s.count(`select count(*) from idem.operations where step = $1 and owner is null and wake_at > clock_timestamp() and state = 'running'`, step) == 1
}

func TestSleep_LongFreesTheCaller(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	d := operation.Define("sleep", func(op *operation.Op, _ int) (idem.Response, error) {
		if err := localStep(op, "before"); err != nil {
			return idem.Response{}, err
		}
		if err := operation.Sleep(op, "cool off", 20*time.Hour); err != nil {
			return idem.Response{}, err
		}
		return created, localStep(op, "after")
	})
	if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0, idem.WithWait(0)); !errors.Is(err, idem.ErrInProgress) {
		t.Fatal(err)
	}
	if did := fmt.Sprint(s.did()); did != "[before]" || !s.isFree("cool off") {
		t.Errorf("%s is committed, asleep: %t", did, s.isFree("cool off"))
	}
	if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0, idem.WithWait(0)); !errors.Is(err, idem.ErrInProgress) {
		t.Errorf("woken too early: %v", err)
	}
	s.elapse() // while no process is there
	if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0, idem.WithWait(0)); err != nil {
		t.Fatal(err)
	}
	if did := fmt.Sprint(s.did()); did != "[before after]" {
		t.Errorf("%s is committed", did)
	}
}

func TestSleep_Short(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	d := operation.Define("nap", func(op *operation.Op, _ int) (idem.Response, error) {
		return created, operation.Sleep(op, "nap", 300*time.Millisecond)
	})
	begun := time.Now()
	if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0); err != nil || time.Since(begun) < 300*time.Millisecond {
		t.Errorf("after %v: %v", time.Since(begun), err)
	}
}

// approval waits for a person to say yes or no.
func approval() *operation.Definition[int] {
	return operation.Define("approval", func(op *operation.Op, _ int) (idem.Response, error) {
		yes, err := operation.Await[bool](op, "approve", 20*time.Hour)
		if errors.Is(err, operation.ErrTimeout) {
			_, err := operation.Tx(op, "time out", write("timed out"))
			return idem.Response{Status: 408}, err
		}
		if err != nil {
			return idem.Response{}, err
		}
		_, err = operation.Tx(op, "decide", write(fmt.Sprint("approved: ", yes)))
		return created, err
	})
}

func TestSignal_FirstWinsAndEarlyOnesWait(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	start := func(key string) string {
		var id string
		err := pgx.BeginFunc(t.Context(), s.pool, func(tx pgx.Tx) (err error) {
			id, err = approval().Start(t.Context(), tx, scope, key, hashA, 0)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	early := start("early")
	for _, value := range []bool{true, false} {
		if err := operation.Signal(t.Context(), s.pool, early, "approve", value); err != nil {
			t.Fatal(err)
		}
	}
	late := start("late")
	s.work(t, approval())
	eventually(t, "both to wait", func() bool { return s.isFree("approve") })
	err := pgx.BeginFunc(t.Context(), s.pool, func(tx pgx.Tx) error {
		return operation.Signal(t.Context(), tx, late, "approve", false)
	})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "both to end", func() bool { return s.count(`select count(*) from idem.operations where state = 'completed'`) == 2 })
	for step, want := range map[string]string{early: "approved: true", late: "approved: false"} {
		if got := s.text(`select step from done where operation_id = $1`, step); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if n := s.count(`select count(*) from idem.signals where not taken`); n != 0 {
		t.Errorf("%d signals are not taken", n)
	}
	if err := operation.Signal(t.Context(), s.pool, "11111111-2222-4333-8444-555555555555", "approve", true); !errors.Is(err, operation.ErrUnknownOperation) {
		t.Errorf("an operation that there is not: %v", err)
	}
	if err := operation.Signal(t.Context(), s.pool, "'; drop table", "approve", true); !errors.Is(err, operation.ErrUnknownOperation) {
		t.Errorf("an id that is none: %v", err)
	}
}

// The signal comes when the operation has looked for it, and has not yet said that it waits.
func TestSignal_BetweenLookAndWait(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	c, behind := newTraffic(t, s)
	c.onStatement("ReadSignal", func() {
		id := s.text(`select id::text from idem.operations`)
		if err := operation.Signal(context.Background(), s.pool, id, "approve", true); err != nil {
			t.Error(err)
		}
	})
	d := operation.Define("approval", func(op *operation.Op, _ int) (idem.Response, error) {
		if err := outsideStep(op, "ask"); err != nil {
			return idem.Response{}, err
		}
		if _, err := operation.Await[bool](op, "approve", 20*time.Hour); err != nil {
			return idem.Response{}, err
		}
		return created, nil
	})
	if _, err := d.Do(t.Context(), behind.pool, scope, "k", hashA, 0, idem.WithWait(limit)); err != nil {
		t.Fatal(err)
	}
}

func TestAwait_TimesOut(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	if _, err := approval().Do(t.Context(), s.pool, scope, "k", hashA, 0, idem.WithWait(0)); !errors.Is(err, idem.ErrInProgress) {
		t.Fatal(err)
	}
	s.elapse()
	res, err := approval().Do(t.Context(), s.pool, scope, "k", hashA, 0)
	if err != nil || res.Status != 408 {
		t.Errorf("%+v, %v", res, err)
	}
	if did := fmt.Sprint(s.did()); did != "[timed out]" {
		t.Errorf("%s is committed", did)
	}
}
