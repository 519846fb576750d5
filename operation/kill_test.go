package operation_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/operation"
)

// work runs a Worker until the test is over.
func (s *shop) work(t *testing.T, definitions ...operation.Runnable) {
	t.Helper()
	s.workWith(t, operation.WorkerConfig{}, definitions...)
}

func (s *shop) workWith(t *testing.T, config operation.WorkerConfig, definitions ...operation.Runnable) {
	t.Helper()
	config.Poll, config.Drain, config.Logger = time.Second/2, time.Second, slog.New(slog.NewTextHandler(t.Output(), nil))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- operation.NewWorker(s.pool, config, definitions...).Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		if err := await(t, "the worker to end", ended); err != nil {
			t.Error(err)
		}
	})
}

// wantBooks fails the test unless the bank was charged once, and refunded once if that is what is to be.
func (s *shop) wantBooks(in string) {
	s.t.Helper()
	want, did := "charge", []string{"reserve", "confirm"}
	if in == "reject" {
		want, did = "charge refund", []string{"reserve", "release"}
	}
	if got := s.text(`select coalesce(string_agg(what, ' ' order by id), '') from bank`); got != want {
		s.t.Errorf("the bank did %q, want %q", got, want)
	}
	if diff := cmp.Diff(did, s.did()); diff != "" {
		s.t.Errorf("(-want +committed):\n%s", diff)
	}
}

// Wherever a process is killed, the next call of the key resumes the operation, and charges under the same key.
func TestDo_FinishesTheOperationOfAKilledProcess(t *testing.T) {
	t.Parallel()
	forEachPoint(t, points, func(t *testing.T, s *shop, point, in string) {
		newVictim(t, s, point, in).kill()
		killed := time.Now()
		res, err := pointed(s.pool, func(string) {}).Do(t.Context(), s.pool, scope, "k", hashA, in, idem.WithWait(limit))
		if err != nil || res.Rejected != (in == "reject") {
			t.Fatalf("%+v, %v", res, err)
		}
		t.Logf("answered %v after the kill", time.Since(killed))
		s.wantBooks(in)
	})
}

// A Worker finishes a recorded operation whose caller does not return.
func TestWorker_FinishesTheOperationOfAKilledProcess(t *testing.T) {
	t.Parallel()
	forEachPoint(t, points[2:], func(t *testing.T, s *shop, point, in string) {
		newVictim(t, s, point, in).kill()
		s.work(t, pointed(s.pool, func(string) {}))
		eventually(t, "the operation to end", func() bool {
			return s.count(`select count(*) from idem.operations where ended_at is not null`) == 1
		})
		s.wantBooks(in)
	})
}

// Two deaths in a row, the second while going on.
func TestDo_FinishesAfterTwoDeaths(t *testing.T) {
	t.Parallel()
	for _, second := range points[2:] {
		t.Run(second, func(t *testing.T) {
			t.Parallel()
			s := newBankShop(t)
			in := inputOf(second)
			newVictim(t, s, "charged", in).kill()
			newVictim(t, s, second, in).kill()
			if _, err := pointed(s.pool, func(string) {}).Do(t.Context(), s.pool, scope, "k", hashA, in, idem.WithWait(limit)); err != nil {
				t.Fatal(err)
			}
			s.wantBooks(in)
		})
	}
}

// inputOf returns an input that leads to the point.
func inputOf(point string) string {
	if strings.Contains(point, "refund") || point == "in release" {
		return "reject"
	}
	return "book"
}

func forEachPoint(t *testing.T, points []string, f func(t *testing.T, s *shop, point, in string)) {
	for _, point := range points {
		for _, in := range []string{"book", "reject"} {
			if in == "book" && inputOf(point) == "reject" {
				continue
			}
			t.Run(fmt.Sprint(in, " ", point), func(t *testing.T) {
				t.Parallel()
				f(t, newBankShop(t), point, in)
			})
		}
	}
}

// A process that is there is left alone, however long its call takes.
func TestWorker_LeavesOperationsInProgressAlone(t *testing.T) {
	t.Parallel()
	s := newBankShop(t)
	v := newVictim(t, s, "charged", "book")
	var polls atomic.Int64
	c, behind := newTraffic(t, s)
	c.onStatement("TakeOperations", func() { polls.Add(1) })
	behind.work(t, pointed(s.pool, func(string) {}))
	eventually(t, "three looks of the worker", func() bool { return polls.Load() >= 3 })
	if epoch := s.count(`select epoch from idem.operations`); epoch != 1 {
		t.Errorf("the operation was claimed, in epoch %d", epoch)
	}
	v.kill()
	eventually(t, "the operation to end", func() bool {
		return s.count(`select count(*) from idem.operations where state = 'completed'`) == 1
	})
	s.wantBooks("book")
}

// A process that is there and has lost an operation from its own list, as by a release that never arrived, counts as absent
// for it.
func TestWorker_ReclaimsAnOperationItHasLost(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	b := newBlocked(s, operation.Keyed(time.Hour))
	s.work(t, b, s.checkout())
	answers := b.call(t.Context(), s) // shows the number of this process
	await(t, "the call", b.begun)
	tx, err := s.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context())
	if _, err := s.checkout().Start(t.Context(), tx, scope, "lost", hashA, "book"); err != nil {
		t.Fatal(err)
	}
	_, err = tx.Exec(t.Context(), `update idem.operations set owner = (select owner from idem.operations where owner is not null),
		wake_at = clock_timestamp() - interval '1 minute' where owner is null`)
	if err == nil {
		err = tx.Commit(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the lost operation to end", func() bool {
		return s.count(`select count(*) from idem.operations where name = 'checkout' and state = 'completed'`) == 1
	})
	if epoch := s.count(`select epoch from idem.operations where name = 'blocked'`); epoch != 1 {
		t.Errorf("the operation that is on the list was claimed, in epoch %d", epoch)
	}
	b.release <- nil
	if a := await(t, "the answer", answers); a.err != nil {
		t.Error(a.err)
	}
}

func TestWorker_LeavesParkedAndUnknownOperationsAlone(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	c := newCalling(operation.Once, failFirst(1, errTimeout))
	parks(t, s, c, operation.ReasonCallInDoubt)
	if _, err := s.start(s.checkout(), "unknown", hashA, true); err != nil {
		t.Fatal(err)
	}
	var polls atomic.Int64
	counted, behind := newTraffic(t, s)
	counted.onStatement("TakeOperations", func() { polls.Add(1) })
	behind.work(t, c)
	eventually(t, "three looks of the worker", func() bool { return polls.Load() >= 3 })
	if n := s.count(`select count(*) from idem.operations where name = 'calling' and state = 'parked' or name = 'checkout' and epoch = 1`); n != 2 {
		t.Errorf("%d operations are as they were, want 2", n)
	}
	if len(c.keys) != 1 {
		t.Errorf("%d calls", len(c.keys))
	}
}
