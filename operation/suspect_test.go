package operation_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/operation"
)

// suspects starts so many operations of a definition, each of which so many processes have not survived.
func (s *shop) suspects(d *operation.Definition[string], n, deaths int) {
	s.t.Helper()
	for i := range n {
		if _, err := s.start(d, fmt.Sprint("suspect", i), hashA, true); err != nil {
			s.t.Fatal(err)
		}
	}
	if _, err := s.pool.Exec(s.t.Context(), `update idem.operations set kind = '', attempts = 1, deaths = $1, epoch = 2, wake_at = clock_timestamp() - interval '1 h'`, deaths); err != nil {
		s.t.Fatal(err)
	}
}

// workBlindly runs a Worker that looks once by itself, and that no guard tells of anything.
func (s *shop) workBlindly(concurrency int, definitions ...operation.Runnable) {
	s.t.Helper()
	config := operation.WorkerConfig{Concurrency: concurrency, Poll: 24 * time.Hour, Drain: time.Second, Logger: slog.New(slog.DiscardHandler)}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	behind := shopOn(s.t, s.dsn, behindPooler)
	go func() { ended <- operation.NewWorker(behind.pool, config, definitions...).Run(ctx) }()
	s.t.Cleanup(func() {
		cancel()
		if err := await(s.t, "the worker to end", ended); err != nil {
			s.t.Error(err)
		}
	})
}

// A process works on one suspect at a time, and on the next one as soon as that has ended: not at its next look, of which there is one a second.
func TestSuspect_NextFollowsAtOnce(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	quick := operation.Define("quick", func(op *operation.Op, _ string) (idem.Response, error) { return created, outsideStep(op, "ask") })
	s.suspects(quick, 20, 3)
	s.workBlindly(4, quick)
	eventually(t, "all to end", s.completed(20))
}

// What is due behind a dozen suspects goes on while one of them is worked on.
func TestSuspect_DoesNotHideOthers(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	release := make(chan struct{})
	suspect := operation.Define("suspect", func(op *operation.Op, _ string) (idem.Response, error) {
		_, err := operation.Call(op, "wait", operation.Keyed(time.Hour), func(ctx context.Context, _ string) (int, error) {
			select {
			case <-release:
			case <-ctx.Done():
			}
			return 0, ctx.Err()
		})
		return created, err
	})
	innocent := operation.Define("innocent", func(op *operation.Op, _ string) (idem.Response, error) { return created, nil })
	s.suspects(suspect, 12, 3)
	if _, err := s.start(innocent, "innocent", hashA, true); err != nil {
		t.Fatal(err)
	}
	s.workBlindly(4, suspect, innocent)
	eventually(t, "the innocent one to end", s.completed(1))
	close(release)
	eventually(t, "all to end", s.completed(13))
}

// A caller that claims an operation which is no suspect does not hold the turn of suspects.
func TestSuspect_TurnIsNotTakenByOthers(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	quick := operation.Define("quick", func(op *operation.Op, _ string) (idem.Response, error) { return created, outsideStep(op, "ask") })
	other := operation.Define("other", func(op *operation.Op, _ string) (idem.Response, error) { return created, outsideStep(op, "ask") })
	s.suspects(quick, 1, 3)
	id, err := s.start(other, "other", hashA, true)
	if err != nil {
		t.Fatal(err)
	}
	proxy := pgtest.Proxy(t, s.dsn)
	trap := proxy.Arm(pgproxy.Before(pgproxy.Contains("TakeOperation ")), pgproxy.Freeze)
	behind := s.through(proxy)
	resumed := make(chan error, 1)
	go func() { resumed <- other.Resume(t.Context(), behind.pool, id) }()
	await(t, "the statement that claims it", trap.Fired())
	s.workBlindly(4, quick)
	eventually(t, "the suspect to end", s.completed(1))
	proxy.Cut(pgproxy.Reset)
	await(t, "the caller to return", resumed)
}

// A process whose claim of a suspect was not acknowledged releases the suspect, and claims it again within seconds.
func TestSuspect_ClaimWhoseAnswerIsLost(t *testing.T) {
	t.Parallel()
	for name, point := range map[string]pgproxy.Point{
		"the answer of the statement that claims it": pgproxy.AfterAnswer(pgproxy.Contains("TakeOperations"), "UPDATE 1"),
		"what is asked for behind it":                pgproxy.Before(pgproxy.Contains("LoadSteps")),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			quick := operation.Define("quick", func(op *operation.Op, _ string) (idem.Response, error) { return created, outsideStep(op, "ask") })
			s.suspects(quick, 1, 9)
			proxy := pgtest.Proxy(t, s.dsn)
			trap := proxy.Arm(point, pgproxy.Reset)
			s.through(proxy, maxConns(1)).work(t, quick)
			await(t, "the loss", trap.Fired())
			eventually(t, "its owner to release it", func() bool {
				return s.count(`select count(*) from idem.operations where owner is null and wake_at <= clock_timestamp() or state = 'completed'`) == 1
			})
			eventually(t, "it to end", s.completed(1))
		})
	}
}
