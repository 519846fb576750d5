package operation_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/operation"
)

// counted is a call whose answers a test sets.
type counted struct {
	mu   sync.Mutex
	keys []string
	fn   func(ctx context.Context, attempt int) (string, error)
}

func (c *counted) call(ctx context.Context, key string) (string, error) {
	c.mu.Lock()
	c.keys = append(c.keys, key)
	n := len(c.keys)
	c.mu.Unlock()
	if c.fn == nil {
		return "booked", nil
	}
	return c.fn(ctx, n)
}

func (c *counted) times() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.keys)
}

// journey is an operation that makes two calls together, each of which has an undo.
type journey struct {
	air, room             counted
	airPolicy, roomPolicy operation.Policy
	seen                  []error // by the last run: what Wait has returned, and each call
}

func newJourney(air, room operation.Policy) *journey {
	return &journey{airPolicy: air, roomPolicy: room}
}

func (p *journey) define(opts ...operation.Option) *operation.Definition[string] {
	return operation.Define("travel", func(op *operation.Op, _ string) (idem.Response, error) {
		_ = localStep(op, "reserve")
		calls := operation.Parallel(op)
		air := operation.Go(calls, "air", p.airPolicy, p.air.call, undoBy[string]("cancel air"))
		room := operation.Go(calls, "room", p.roomPolicy, p.room.call, undoBy[string]("cancel room"))
		failed := calls.Wait()
		ticket, noTicket := air.Value()
		bed, noBed := room.Value()
		p.seen = []error{failed, noTicket, noBed}
		if failed != nil {
			return idem.Response{}, failed
		}
		return idem.Response{Status: 201, Body: []byte(ticket + bed)}, localStep(op, "confirm")
	}, opts...)
}

func (s *shop) operationID() string {
	s.t.Helper()
	return s.text(`select id::text from idem.operations`)
}

// wantOutcomes fails the test unless the calls have these recorded outcomes.
func (s *shop) wantOutcomes(want string) {
	s.t.Helper()
	if got := s.text(`select coalesce(string_agg(name || ' ' || outcome, ', ' order by seq), '') from idem.steps where kind = 'call'`); got != want {
		s.t.Errorf("%s, want %s", got, want)
	}
}

// Each call waits until the other one is in progress.
func TestParallel_CallsRunAtOnceAndReplay(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	p := newJourney(operation.Keyed(time.Hour), operation.Once)
	air, room := make(chan struct{}), make(chan struct{})
	p.air.fn = func(context.Context, int) (string, error) { close(air); <-room; return "ticket ", nil }
	p.room.fn = func(context.Context, int) (string, error) { close(room); <-air; return "bed", nil }
	fails := true
	d := operation.Define("twice", func(op *operation.Op, _ string) (idem.Response, error) {
		calls := operation.Parallel(op)
		air := operation.Go(calls, "air", p.airPolicy, p.air.call)
		room := operation.Go(calls, "room", p.roomPolicy, p.room.call)
		err := calls.Wait()
		if err == nil && fails {
			err = errTimeout
		}
		ticket, noTicket := air.Value()
		bed, noBed := room.Value()
		return idem.Response{Status: 201, Body: []byte(ticket + bed)}, first(err, noTicket, noBed)
	})
	want(t, errTimeout)(d.Do(t.Context(), s.pool, scope, "k", hashA, ""))
	s.wantOutcomes("air done, room done")
	fails = false
	wantBody(t, "ticket bed")(d.Do(t.Context(), s.pool, scope, "k", hashA, "", idem.WithWait(limit)))
	if p.air.times() != 1 || p.room.times() != 1 || p.air.keys[0] == p.room.keys[0] {
		t.Errorf("%q, %q", p.air.keys, p.room.keys)
	}
}

func TestParallel_FailureLetsTheOthersEnd(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	p := newJourney(operation.Keyed(time.Hour), operation.Once)
	failed := make(chan struct{})
	p.air.fn = func(context.Context, int) (string, error) { close(failed); return "", operation.Final(errDeclined) }
	p.room.fn = func(ctx context.Context, _ int) (string, error) { <-failed; return "bed", ctx.Err() }
	_, err := p.define().Do(t.Context(), s.pool, scope, "k", hashA, "")
	if !errors.Is(err, errDeclined) || !errors.Is(p.seen[0], errDeclined) || !errors.Is(p.seen[1], errDeclined) || p.seen[2] != nil {
		t.Errorf("%v; the function saw %v", err, p.seen)
	}
	s.wantOutcomes("air failed, room done")
	s.wantDid("reserve", "cancel room")
}

// One call is in doubt. The outcome of the other call is recorded before the operation parks, and
// that call is not made again.
func TestParallel_ParksWhenTheOthersHaveEnded(t *testing.T) {
	t.Parallel()
	for name, finding := range map[string]operation.Finding{"it has happened": operation.Happened("bed"), "it has not": operation.NotHappened} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			p := newJourney(operation.Keyed(time.Hour).WithBackoff(time.Millisecond, time.Millisecond), operation.Once)
			lost := make(chan struct{})
			p.room.fn = func(_ context.Context, attempt int) (string, error) {
				if attempt == 1 {
					defer close(lost)
					return "", errTimeout
				}
				return "bed", nil
			}
			p.air.fn = func(_ context.Context, attempt int) (string, error) {
				<-lost
				if attempt < 4 {
					return "", errTimeout
				}
				return "ticket ", nil
			}
			d := p.define()
			parked := parkedAt(t, "room", operation.ReasonCallInDoubt)(s.do(d))
			s.wantOutcomes("air done, room begun")
			if status, err := operation.Show(t.Context(), s.pool, parked.OperationID); err != nil || status.Step != "room" || status.Kind != "call" || !status.Steps[2].DueAt.IsZero() {
				t.Errorf("%+v, %v", status, err)
			}
			must(t, operation.Retry(t.Context(), s.pool, parked.OperationID))
			want(t, operation.ErrParked)(d.Do(t.Context(), s.pool, scope, "k", hashA, ""))
			must(t, operation.Resolve(t.Context(), s.pool, parked.OperationID, finding))
			res, err := d.Do(t.Context(), s.pool, scope, "k", hashA, "")
			if p.air.times() != 4 || p.room.times() != 1 {
				t.Errorf("%d and %d attempts", p.air.times(), p.room.times())
			}
			if name == "it has not" {
				want(t, operation.ErrNotHappened)(res, err)
				s.wantDid("reserve cancel air")
				return
			}
			if err != nil || string(res.Body) != "ticket bed" {
				t.Errorf("%s, %v", res.Body, err)
			}
			s.wantDid("reserve confirm")
		})
	}
}

// When the caller leaves, one call has returned, one was not sent, and one is in doubt.
func TestParallel_CallerThatLeavesKeepsEachOutcome(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	ctx, leave := context.WithCancel(t.Context())
	var tried sync.WaitGroup
	tried.Add(3)
	first := func(value string, err error) *counted {
		return &counted{fn: func(_ context.Context, attempt int) (string, error) {
			if attempt == 1 {
				tried.Done()
				return value, err
			}
			return "later", nil
		}}
	}
	done, unsent, lost := first("done", nil), first("", operation.NotSent(errTimeout)), first("", errTimeout)
	go func() { tried.Wait(); leave() }()
	d := operation.Define("three", func(op *operation.Op, _ string) (idem.Response, error) {
		calls := operation.Parallel(op)
		a := operation.Go(calls, "done", operation.Once, done.call)
		b := operation.Go(calls, "unsent", operation.Once.WithBackoff(4*time.Second, 4*time.Second), unsent.call)
		c := operation.Go(calls, "lost", operation.Keyed(time.Hour).WithBackoff(4*time.Second, 4*time.Second), lost.call)
		err := calls.Wait()
		va, _ := a.Value()
		vb, _ := b.Value()
		vc, _ := c.Value()
		return idem.Response{Status: 201, Body: []byte(va + " " + vb + " " + vc)}, err
	})
	want(t, context.Canceled)(d.Do(ctx, s.pool, scope, "k", hashA, ""))
	s.wantOutcomes("done done, unsent not sent, lost begun")
	res, err := d.Do(t.Context(), s.pool, scope, "k", hashA, "")
	if err != nil || string(res.Body) != "done later later" || done.times() != 1 || unsent.times() != 2 || lost.times() != 2 {
		t.Errorf("%s, %v: %d, %d and %d calls", res.Body, err, done.times(), unsent.times(), lost.times())
	}
}

// A long backoff of one call frees the caller only when no other call is in progress.
func TestParallel_LongBackoffFreesTheCaller(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	pauses, released := make(chan struct{}), make(chan struct{})
	var ended atomic.Bool
	down := counted{fn: func(_ context.Context, attempt int) (string, error) {
		if attempt > 1 {
			return "up again", nil
		}
		close(pauses)
		return "", errTimeout
	}}
	slow := counted{fn: func(context.Context, int) (string, error) { <-released; ended.Store(true); return "slow", nil }}
	d := define(func(op *operation.Op) error {
		calls := operation.Parallel(op)
		operation.Go(calls, "down", operation.Keyed(30*time.Hour).WithBackoff(100*time.Hour, 100*time.Hour), down.call)
		operation.Go(calls, "slow", operation.Once, slow.call)
		return calls.Wait()
	})
	answered := s.goDo(t.Context(), d, idem.WithWait(0))
	await(t, "the first attempt", pauses)
	s.wantCount(1, `select count(*) from idem.operations where owner is not null`) // while a call is in progress
	close(released)
	if a := await(t, "the caller to be free", answered); !errors.Is(a.err, idem.ErrInProgress) || !ended.Load() {
		t.Fatal(a.err)
	}
	if s.wantOutcomes("down begun, slow done"); !s.isFree("down") {
		t.Errorf("it waits at %s", s.text(`select step from idem.operations`))
	}
	s.wantCount(1, `select count(*) from idem.operations where wake_at < clock_timestamp() + interval '101 hours'`)
	s.exec(`update idem.operations set wake_at = clock_timestamp()`)
	if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, ""); err != nil || down.times() != 2 || slow.times() != 1 {
		t.Errorf("%v after %d and %d calls", err, down.times(), slow.times())
	}
}

// A call that was never sent does not hide later recorded calls.
func TestCancel_UndoesParallelCallsBehindOneThatWasNotSent(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	p := newJourney(operation.Keyed(time.Hour).WithBackoff(100*time.Hour, 100*time.Hour), operation.Once)
	p.air.fn = func(context.Context, int) (string, error) { return "", operation.NotSent(errTimeout) }
	d := p.define()
	id := s.waits(t, d, "k")
	s.wantOutcomes("air not sent, room done")
	preview, err := operation.PreviewCancel(t.Context(), s.pool, id)
	if err != nil || preview.InDoubt != nil || !slices.Equal(preview.Undos, []string{"room"}) || !slices.Equal(preview.Kept, []string{"reserve"}) {
		t.Errorf("%+v, %v", preview, err)
	}
	must(t, operation.Cancel(t.Context(), s.pool, id))
	want(t, operation.ErrCanceled)(d.Do(t.Context(), s.pool, scope, "k", hashA, ""))
	if s.wantDid("reserve cancel room"); p.air.times() != 1 {
		t.Errorf("%d calls", p.air.times())
	}
}

// A panic in one call does not lose the outcome of the other, and does not end the process.
func TestParallel_PanicKeepsTheOthers(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	p := newJourney(operation.Keyed(time.Hour), operation.Once)
	p.air.fn = func(_ context.Context, attempt int) (string, error) {
		if attempt == 1 {
			panic("for once")
		}
		return "ticket ", nil
	}
	d := p.define()
	done := make(chan any, 1)
	go func() {
		defer func() { done <- recover() }()
		_, err := d.Do(t.Context(), s.pool, scope, "k", hashA, "")
		t.Errorf("got %v", err)
	}()
	if r := await(t, "the first run", done); !strings.Contains(fmt.Sprint(r), "for once") {
		t.Errorf("it has panicked with %v", r)
	}
	s.wantOutcomes("air begun, room done")
	if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, "", idem.WithWait(limit)); err != nil || p.air.times() != 2 || p.room.times() != 1 {
		t.Errorf("%v after %d and %d calls", err, p.air.times(), p.room.times())
	}
}

func TestParallel_RefusesMisuse(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	one := func(calls *operation.Calls, name string) *operation.Value[int] {
		return operation.Go(calls, name, operation.Keyed(time.Hour), func(context.Context, string) (int, error) { return 1, nil })
	}
	for name, test := range map[string]func(op *operation.Op) error{
		"Wait twice": func(op *operation.Op) error {
			calls := operation.Parallel(op)
			one(calls, "a")
			return errors.Join(calls.Wait(), ignore(calls.Wait()))
		},
		"Go behind Wait": func(op *operation.Op) error {
			calls := operation.Parallel(op)
			one(calls, "a")
			err := calls.Wait()
			one(calls, "b")
			return err
		},
		"no Wait": func(op *operation.Op) error {
			one(operation.Parallel(op), "a")
			return nil
		},
		"Value before Wait": func(op *operation.Op) error {
			calls := operation.Parallel(op)
			a := one(calls, "a")
			_, err := a.Value()
			return errors.Join(ignore(err), ignore(calls.Wait()))
		},
		"Changed in between": func(op *operation.Op) error {
			calls := operation.Parallel(op)
			one(calls, "a")
			op.Changed("b")
			return ignore(calls.Wait())
		},
		"a Go in a call": func(op *operation.Op) error {
			calls := operation.Parallel(op)
			operation.Go(calls, "a", operation.Keyed(time.Hour), func(context.Context, string) (int, error) { one(calls, "b"); return 1, nil })
			return calls.Wait()
		},
		"two at once": func(op *operation.Op) error {
			a, b := operation.Parallel(op), operation.Parallel(op)
			one(a, "a")
			one(b, "b")
			return errors.Join(ignore(a.Wait()), ignore(b.Wait()))
		},
	} {
		if _, err := define(test).Do(t.Context(), s.pool, scope, name, hashA, ""); !errors.Is(err, operation.ErrMisused) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// ignore stands for a function that does not check an error.
func ignore(error) error { return nil }
