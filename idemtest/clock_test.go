package idemtest_test

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemtest"
	"github.com/idem-go/idem/operation"
	"github.com/idem-go/idem/outbox"
)

func TestAdvance_LetsRecordsExpire(t *testing.T) {
	t.Parallel()
	pool := idemtest.Pool(t)
	do := func() bool {
		res, err := idem.Do(t.Context(), pool, "tenant", "k", idem.HashBytes(nil), func(pgx.Tx) (idem.Response, error) {
			return idem.Response{Status: 201}, nil
		}, idem.WithTTL(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		return res.Replayed
	}
	do()
	for _, step := range []struct {
		passes   time.Duration
		replayed bool
	}{{59 * time.Minute, true}, {2 * time.Minute, false}, {0, true}} {
		idemtest.Advance(t, pool, step.passes)
		if got := do(); got != step.replayed {
			t.Errorf("%v later: replayed %t", step.passes, got)
		}
	}
}

func TestAdvance_EndsPausesOfOperationsAndMessages(t *testing.T) {
	t.Parallel()
	pool := idemtest.Pool(t)
	reminder := operation.Define("reminder", func(op *operation.Op, _ int) (idem.Response, error) {
		if err := operation.Sleep(op, "a day", 24*time.Hour); err != nil {
			return idem.Response{}, err
		}
		return idem.Response{Status: 201}, nil
	})
	call := func() error {
		_, err := reminder.Do(t.Context(), pool, "tenant", "k", idem.HashBytes(nil), 1, idem.WithWait(0))
		return err
	}
	if err := call(); !errors.Is(err, idem.ErrInProgress) {
		t.Fatal(err)
	}
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		return outbox.Add(t.Context(), tx, outbox.Message{Topic: "reminders", Payload: []byte("{}"), NotBefore: time.Now().Add(24 * time.Hour)})
	})
	if err != nil {
		t.Fatal(err)
	}
	due := func() (n int) {
		if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM idem.delayed WHERE not_before <= now()`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := due(); n != 0 {
		t.Errorf("%d messages are due", n)
	}
	idemtest.Advance(t, pool, 25*time.Hour)
	if err := call(); err != nil {
		t.Errorf("a day later: %v", err)
	}
	if n := due(); n != 1 {
		t.Errorf("a day later %d messages are due", n)
	}
}
