package txn

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

func TestPauses_DoubleUpToLimitWithJitter(t *testing.T) {
	t.Parallel()
	seen := map[time.Duration]bool{}
	for range 200 {
		p := Pauses{Current: 2 * time.Millisecond, Limit: 100 * time.Millisecond}
		for _, top := range []time.Duration{2, 4, 8, 16, 32, 64, 100, 100, 100} {
			top *= time.Millisecond
			if pause := p.Next(); pause < top/2 || pause >= top {
				t.Fatalf("%v is not between %v and %v", pause, top/2, top)
			} else if top == 100*time.Millisecond {
				seen[pause] = true
			}
		}
	}
	if len(seen) < 100 {
		t.Errorf("of 600 pauses only %d differ: those who wait together ask together", len(seen))
	}
}

func TestSleep_EndsWithContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		if err := Sleep(t.Context(), time.Minute); err != nil || time.Since(begun) != time.Minute {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begun = time.Now()
		if err := Sleep(ctx, time.Minute); !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != time.Second {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
	})
}

var errBusiness = errors.New("insufficient funds")

func TestEngineDo_CommitsUnlessFnFailsOrUndoes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, test := range []struct {
		name string
		undo bool
		err  error
		made int
	}{
		{name: "kept", made: 1},
		{name: "undone", undo: true},
		{name: "failed", err: errBusiness},
		{name: "failed and undone", undo: true, err: errBusiness},
	} {
		if err := b.engine.Do(t.Context(), 3, write(test.name, test.undo, test.err)); !errors.Is(err, test.err) {
			t.Errorf("%s: the error is %v", test.name, err)
		}
		b.wantMade(test.name, test.made)
	}
	if n := b.engine.Pool.Stat().NewConnsCount(); n != 1 {
		t.Errorf("%d connections were made: a sound one was thrown away", n)
	}
}

func TestEngineDo_RetriesSerializationFailureAndDeadlock(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for code, runs := range map[string]int{"40001": 3, "40P01": 3, "23505": 1, "57P01": 1, "55P03": 1} {
		n, cause := 0, &pgconn.PgError{Severity: "ERROR", Code: code}
		err := b.engine.Do(t.Context(), 2, func(tx pgx.Tx) (bool, error) { n++; return write(code, false, cause)(tx) })
		if !errors.Is(err, cause) || n != runs {
			t.Errorf("%s: %d runs, want %d; %v", code, n, runs, err)
		}
		b.wantMade(code, 0)
	}
	n := 0
	err := b.engine.Do(t.Context(), 2, func(tx pgx.Tx) (bool, error) {
		if n++; n < 3 {
			return write("at last", false, &pgconn.PgError{Severity: "ERROR", Code: "40001"})(tx)
		}
		return write("at last", false, nil)(tx)
	})
	if err != nil || n != 3 {
		t.Errorf("%d runs, %v", n, err)
	}
	b.wantMade("at last", 1)
}

func TestEngineDo_StopsRetryingAfterEndOfContext(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ctx, cancel := context.WithCancel(t.Context())
	n, cause := 0, &pgconn.PgError{Severity: "ERROR", Code: "40001"}
	err := b.engine.Do(ctx, 1000, func(tx pgx.Tx) (bool, error) { n++; cancel(); return false, cause })
	if !errors.Is(err, cause) || n != 1 {
		t.Errorf("%d runs, %v", n, err)
	}
}

func TestEngineDo_RejectsBrokenTransaction(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ctx := context.Background()
	for name, test := range map[string]struct {
		spoil func(tx pgx.Tx)
		want  error
		made  int
	}{
		"Commit":        {func(tx pgx.Tx) { tx.Commit(ctx) }, ErrEnded, 0},
		"Rollback":      {func(tx pgx.Tx) { tx.Rollback(ctx) }, ErrEnded, 0},
		"commit by SQL": {func(tx pgx.Tx) { tx.Exec(ctx, "commit") }, ErrEnded, 1},
		"error ignored": {func(tx pgx.Tx) { tx.Exec(ctx, "select 1/0") }, ErrAborted, 0},
		"rows open":     {func(tx pgx.Tx) { tx.Query(ctx, "select 1") }, ErrAborted, 0},
		"conn closed":   {func(tx pgx.Tx) { tx.Conn().Close(ctx) }, ErrAborted, 0},
	} {
		err := b.engine.Do(ctx, 3, func(tx pgx.Tx) (bool, error) {
			undo, err := write(name, false, nil)(tx)
			test.spoil(tx)
			return undo, err
		})
		if !errors.Is(err, test.want) {
			t.Errorf("%s: the error is %v, want %v", name, err, test.want)
		}
		b.wantMade(name, test.made)
		if err := b.engine.Do(ctx, 0, write("after "+name, false, nil)); err != nil {
			t.Errorf("the next: %v", err)
		}
	}
}
