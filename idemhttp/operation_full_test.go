package idemhttp_test

import (
	"context"
	"log/slog"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemhttp"
	"github.com/idem-go/idem/operation"
)

// work runs a Worker until the test is over.
func (s *shop) work(d operation.Runnable) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	config := operation.WorkerConfig{Poll: time.Second / 2, Logger: slog.New(slog.NewTextHandler(s.t.Output(), nil))}
	go func() { ended <- operation.NewWorker(s.pool, config, d).Run(ctx) }()
	s.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			s.t.Error(err)
		}
	})
}

func one(c *idemhttp.OperationConfig[cart]) { c.Patience, c.MaxRunning = time.Nanosecond, 1 }

// The number of operations that run without a request is limited. An operation above the limit is
// durable, and a Worker runs it.
func TestOperate_LeavesOperationsAboveMaxRunningToWorkers(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	release := make(chan struct{})
	var calls atomic.Int64
	d := s.checkout(operation.Keyed(time.Hour), func(ctx context.Context) (string, error) {
		if calls.Add(1) > 1 {
			return "ch_2", nil
		}
		select {
		case <-release:
			return "ch_1", nil
		case <-ctx.Done():
			return "", ctx.Err()
		}
	})
	h := s.operate(d, one)
	first := wantOperation(t, ask(h), http.StatusAccepted, "running")
	above := wantOperation(t, ask(h, withKey("above")), http.StatusAccepted, "running")
	if above.ID == first.ID || len(above.Steps) != 0 || calls.Load() != 1 {
		t.Errorf("after %d calls: %+v", calls.Load(), above)
	}
	if again := wantOperation(t, ask(h, withKey("above")), http.StatusAccepted, "running"); again.ID != above.ID {
		t.Errorf("a repetition is told of %s, the first of %s", again.ID, above.ID)
	}
	wantProblem(t, ask(h, withKey("above"), withBody(`{"sku":"kettle"}`)), http.StatusUnprocessableEntity, "key-reused")
	if n := s.count(`select count(*) from idem.operations where owner is null and epoch = 1`); n != 1 {
		t.Errorf("%d operations wait for a Worker", n)
	}
	s.work(d)
	for begun := time.Now(); s.count(`select count(*) from idem.operations where state = 'completed'`) == 0; time.Sleep(20 * time.Millisecond) {
		if time.Since(begun) > time.Minute {
			t.Fatal("no Worker has ended it")
		}
	}
	answer := ask(h, withKey("above"))
	wantStatus(t, answer, http.StatusCreated)
	if answer.Header.Get("Location") == "" || s.count(`select count(*) from idem.operations where state = 'running'`) != 1 {
		t.Errorf("it is no replay beside one that runs: %v", answer.Header)
	}
	close(release)
	shutdown(t, h)
	s.want(2, 2)
	if below := ask(h, withKey("below")); below.StatusCode != http.StatusAccepted && below.StatusCode != http.StatusCreated {
		t.Errorf("there is room again, and the answer is %s", below.Status)
	}
	shutdown(t, h)
	s.want(3, 3)
}

// unstartable is an operation without this kind of Start, like those of idemriver.
type unstartable struct{ d *operation.Definition[cart] }

func (u unstartable) Do(ctx context.Context, pool *pgxpool.Pool, scope, key string, hash idem.Hash, in cart, opts ...idem.Option) (idem.Result, error) {
	return u.d.Do(ctx, pool, scope, key, hash, in, opts...)
}

func TestOperate_WithoutStartAboveMaxRunningIsA503(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	release := make(chan struct{})
	h, err := idemhttp.Operate(s.middleware(func(c *idemhttp.Config) { c.Wait = -1 }), unstartable{s.checkout(operation.Keyed(time.Hour), func(context.Context) (string, error) {
		<-release
		return "ch_1", nil
	})}, idemhttp.OperationConfig[cart]{StatusPath: "/operations/{id}", Patience: time.Nanosecond, MaxRunning: 1})
	if err != nil {
		t.Fatal(err)
	}
	first := wantOperation(t, ask(h), http.StatusAccepted, "running")
	answer := ask(h, withKey("above"))
	if after := answer.Header.Get("Retry-After"); after == "" {
		t.Error("it is not said when to try again")
	}
	wantProblem(t, answer, http.StatusServiceUnavailable, "unavailable")
	if again := wantOperation(t, ask(h), http.StatusAccepted, "running"); again.ID != first.ID { // it takes no room
		t.Errorf("a repetition is told of %s, the first of %s", again.ID, first.ID)
	}
	close(release)
	shutdown(t, h)
	s.want(1, 1)
}
