package operation_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/idem-go/idem/operation"
)

// workRarely runs a Worker that hardly ever looks by itself, until the test is over.
func (s *shop) workRarely(t *testing.T, definitions ...operation.Runnable) {
	t.Helper()
	config := operation.WorkerConfig{Poll: 24 * time.Hour, Drain: time.Second, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- operation.NewWorker(s.pool, config, definitions...).Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := await(t, "the worker to end", ended); err != nil {
			t.Error(err)
		}
	})
}

const guards = `select count(*) from pg_locks where locktype = 'advisory' and classid = 1768187248 and objsubid = 2
	and database = (select oid from pg_database where datname = current_database())`

// A killed process is noticed by another one that runs a Worker, and not by its next look.
func TestEndOfAProcessIsNoticedBeforeTheNextLookOfAWorker(t *testing.T) {
	t.Parallel()
	s := newBankShop(t)
	d := pointed(s.pool, func(string) {})
	s.workRarely(t, d)
	eventually(t, "a guard", func() bool { return s.count(guards) == 1 })
	v := newVictim(t, s, "charged", "book")
	v.kill()
	killed := time.Now()
	eventually(t, "the operation to end", s.completed(1))
	t.Logf("ended %v after the kill", time.Since(killed))
	s.wantBooks("book")
}

// There are two guards at most, however many Workers run, and one that ends leaves its place to another.
func TestTwoOfTheProcessesWithAWorkerAreGuards(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	d := s.checkout()
	var stops []context.CancelFunc
	ended := make(chan error, 3)
	for range 3 {
		there := shopOn(t, s.dsn)
		ctx, stop := context.WithCancel(t.Context())
		stops = append(stops, stop)
		go func() { ended <- operation.NewWorker(there.pool, operation.WorkerConfig{}, d).Run(ctx) }()
	}
	eventually(t, "two guards", func() bool { return s.count(guards) == 2 && s.count(presences) == 3 })
	stops[0]()
	stops[1]()
	for range 2 {
		if err := await(t, "a worker to end", ended); err != nil {
			t.Error(err)
		}
	}
	eventually(t, "the third to be a guard", func() bool { return s.count(guards) == 1 && s.count(presences) == 1 })
	stops[2]()
	if err := await(t, "the last worker to end", ended); err != nil {
		t.Error(err)
	}
}
