package operation_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/operation"
)

// companyOf makes the test binary a process with a Worker. One of its operations kills the process.
const companyOf = "IDEM_TEST_COMPANY_OF"

const companyDeaths = 4

// company returns the definitions of that process: one that kills it, and one whose operations take
// longer than that.
func company(pool *pgxpool.Pool) []operation.Runnable {
	killer := operation.Define("killer", func(op *operation.Op, in string) (idem.Response, error) {
		_, err := operation.Call(op, "kill", operation.Keyed(time.Hour), func(context.Context, string) (int, error) {
			time.Sleep(300 * time.Millisecond)
			return 0, syscall.Kill(os.Getpid(), syscall.SIGKILL)
		})
		return created, err
	}, operation.WithMaxDeaths(companyDeaths))
	innocent := operation.Define("innocent", func(op *operation.Op, in string) (idem.Response, error) {
		_, err := operation.Call(op, "slow", operation.Keyed(time.Hour), func(ctx context.Context, key string) (string, error) {
			time.Sleep(600 * time.Millisecond)
			return bankTable(ctx, pool, "slow", key)
		})
		return created, err
	}, operation.WithMaxDeaths(companyDeaths))
	return []operation.Runnable{killer, innocent}
}

func beCompany(dsn string) {
	pool, err := pgxpool.New(context.Background(), dsn)
	if err != nil {
		panic(err)
	}
	_ = operation.NewWorker(pool, operation.WorkerConfig{Poll: time.Second / 2}, company(pool)...).Run(context.Background())
}

// Eleven operations run in one process, and one of them kills it.
func TestDeaths_ParkOnlyTheKiller(t *testing.T) {
	t.Parallel()
	const innocents = 10
	s := newBankShop(t)
	for i := range innocents + 1 {
		name := "innocent"
		if i == innocents/2 {
			name = "killer"
		}
		s.startAll(operation.Define(name, func(*operation.Op, string) (idem.Response, error) { return created, nil }), fmt.Sprint("k", i))
	}
	processes := 0
	over := func() bool {
		return s.count(`select count(*) from idem.operations where state = 'parked' or state = 'completed'`) == innocents+1
	}
	for deadline := time.Now().Add(limit); !over(); processes++ {
		if time.Now().After(deadline) {
			t.Fatalf("it is not over after %d processes: %s", processes, s.text(`select string_agg(name || ' ' || state || ' ' || coalesce(deaths, 0), ', ') from idem.operations`))
		}
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), companyOf+"="+s.dsn)
		must(t, cmd.Start())
		died := make(chan error, 1)
		go func() { died <- cmd.Wait() }()
		for alive := true; alive && !over(); {
			select {
			case <-died:
				alive = false
			case <-time.After(20 * time.Millisecond):
			}
		}
		_ = cmd.Process.Kill()
	}
	t.Logf("%d processes", processes)
	parked := s.text(`select string_agg(name || ': ' || reason, ', ') from idem.operations where state = 'parked'`)
	if parked != "killer: too_many_deaths" {
		t.Errorf("parked are %s", parked)
	}
	s.wantCount(innocents, `select count(*) from bank`)
}

// Callers that leave, errors of the function and a missing Sealer do not count as deaths.
func TestDeaths_OthersDoNotCount(t *testing.T) {
	t.Parallel()
	s, sealed := newShop(t), sealerOf(7)
	fails, leave := true, func() {}
	d := operation.Define("tried", func(op *operation.Op, _ string) (idem.Response, error) {
		if fails {
			leave()
			return idem.Response{}, first(op.Checkpoint(), errTimeout)
		}
		return created, nil
	}, operation.WithMaxDeaths(2))
	tx, err := s.pool.Begin(t.Context())
	must(t, err)
	id, err := d.Start(t.Context(), tx, scope, "k", hashA, "", sealed)
	must(t, errors.Join(err, tx.Commit(t.Context())))
	due := func() { s.exec(`update idem.operations set wake_at = clock_timestamp()`) }
	for range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		leave = cancel
		want(t, context.Canceled)(d.Do(ctx, s.pool, scope, "k", hashA, "", sealed))
		leave = func() {}
		due()
		want(t, errTimeout)(nil, d.Resume(t.Context(), s.pool, id, sealed))
		due()
		want(t, idem.ErrUnreadable)(nil, d.Resume(t.Context(), s.pool, id))
		due()
	}
	fails = false
	must(t, d.Resume(t.Context(), s.pool, id, sealed))
}

// A run of a suspect is repeated after a transient error. The suspect keeps its turn, so that the
// outcome of its call is recorded although other suspects wait for the turn.
func TestDeaths_SuspectKeepsItsTurn(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	const rivals = 4
	ended, leave := make(chan struct{}), func() {}
	rival := operation.Define("rival", func(*operation.Op, string) (idem.Response, error) {
		<-ended
		return created, nil
	})
	ids := s.startAll(rival, "1", "2", "3", "4")
	var waiting sync.WaitGroup
	letRivalsWait := func() {
		for i := range rivals {
			waiting.Go(func() {
				for rival.Resume(t.Context(), s.pool, ids[i]) != nil && t.Context().Err() == nil {
					time.Sleep(time.Millisecond)
				}
			})
		}
	}
	calls, errorsLeft := 0, 2
	d := define(func(op *operation.Op) error {
		_, err := operation.Call(op, "charge", keyed, func(context.Context, string) (string, error) {
			if calls++; calls == 1 {
				leave()
				return "", errTimeout
			}
			letRivalsWait()
			return "receipt", nil
		})
		return first(err, operation.Exec(op, "confirm", func(tx pgx.Tx) error {
			if errorsLeft--; errorsLeft >= 0 {
				_, err := tx.Exec(t.Context(), "do $$ begin raise exception using errcode = '40001'; end $$")
				return err
			}
			return nil
		}))
	})
	id := start(s, d, "")
	ctx, cancel := context.WithCancel(t.Context())
	leave = cancel
	want(t, idem.ErrInProgress)(nil, d.Resume(ctx, s.pool, id))
	s.exec(`update idem.operations set deaths = 3, attempts = 1, wake_at = now()`)
	for calls == 1 { // until no other suspect of this process has the turn
		if err := d.Resume(t.Context(), s.pool, id); err != nil && !errors.Is(err, idem.ErrInProgress) {
			t.Fatal(err)
		}
	}
	close(ended)
	waiting.Wait()
	s.wantState(id, operation.StateCompleted)
	if calls != 2 {
		t.Errorf("the call was made %d times", calls)
	}
}

func TestWithMaxDeaths_Parks(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	ran := 0
	d := operation.Define("mortal", func(op *operation.Op, _ string) (idem.Response, error) {
		ran++
		return idem.Response{}, errTimeout
	}, operation.WithMaxDeaths(2))
	id := s.startAll(d, "k")[0]
	var err error
	for range 2 {
		s.exec(`update idem.operations set owner = 2147483647, wake_at = clock_timestamp()`) // who is not there
		err = d.Resume(t.Context(), s.pool, id)
	}
	if parkedAt(t, "", operation.ReasonTooManyDeaths)(nil, err); ran != 1 {
		t.Errorf("%d runs", ran)
	}
	must(t, operation.Retry(t.Context(), s.pool, id)) // which begins the count anew
	want(t, errTimeout)(nil, d.Resume(t.Context(), s.pool, id))
}

// work runs a Worker until the test ends.
func (s *shop) work(t *testing.T, definitions ...operation.Runnable) {
	t.Helper()
	s.workWith(t, operation.WorkerConfig{}, definitions...)
}

// workWith is work with a configuration. It returns a function that stops the Worker earlier.
func (s *shop) workWith(t *testing.T, config operation.WorkerConfig, definitions ...operation.Runnable) (stop func()) {
	t.Helper()
	config.Poll, config.Drain = max(config.Poll, time.Second/2), time.Second
	if config.Logger == nil {
		config.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- operation.NewWorker(s.pool, config, definitions...).Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		must(t, await(t, "the worker to end", ended))
	})
	t.Cleanup(stop)
	return stop
}

// wantBooks fails the test unless the bank was charged once, and refunded once if the operation is
// undone.
func (s *shop) wantBooks(in string) {
	s.t.Helper()
	want, did := "charge", "reserve confirm"
	if in == "reject" {
		want, did = "charge refund", "reserve release"
	}
	if got := s.text(`select coalesce(string_agg(what, ' ' order by id), '') from bank`); got != want {
		s.t.Errorf("the bank did %q, want %q", got, want)
	}
	s.wantDid(did)
}

// Wherever a process is killed, the next call of the key resumes the operation, and charges under
// the same key.
func TestDo_FinishesTheOperationOfAKilledProcess(t *testing.T) {
	t.Parallel()
	forEachPoint(t, []string{"in reserve", "charged", "in confirm", "refunded"}, func(t *testing.T, s *shop, point, in string) {
		newVictim(t, s, point, in).kill()
		res, err := pointed(s.pool, func(string) {}).Do(t.Context(), s.pool, scope, "k", hashA, in, idem.WithWait(limit))
		if err != nil || res.Rejected != (in == "reject") {
			t.Fatalf("%+v, %v", res, err)
		}
		s.wantBooks(in)
	})
}

// A Worker finishes an operation whose process was killed, and whose caller does not return.
func TestWorker_FinishesTheOperationOfAKilledProcess(t *testing.T) {
	t.Parallel()
	forEachPoint(t, []string{"before the charge", "behind confirm", "in release"}, func(t *testing.T, s *shop, point, in string) {
		newVictim(t, s, point, in).kill()
		s.work(t, pointed(s.pool, func(string) {}))
		eventually(t, "the operation to end", func() bool { return s.count(`select count(*) from idem.operations where ended_at is not null`) == 1 })
		s.wantBooks(in)
	})
}

// inputOf returns an input with which the operation reaches the point.
func inputOf(point string) string {
	if point == "refunded" || point == "in release" {
		return "reject"
	}
	return "book"
}

func forEachPoint(t *testing.T, points []string, f func(t *testing.T, s *shop, point, in string)) {
	for _, point := range points {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			f(t, newBankShop(t), point, inputOf(point))
		})
	}
}

// The database is unavailable when a call returns, and while a Worker polls. The caller gets a
// retryable error, and the operation continues later.
func TestWorker_SurvivesADatabaseOutage(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	proxy := pgtest.Proxy(t, s.dsn)
	behind := s.through(proxy, maxConns(4))
	b := newBlocked(s, operation.Keyed(time.Hour))
	answers := behind.goDo(t.Context(), b.Definition)
	running := await(t, "the call", b.begun)
	proxy.Refuse(pgproxy.Reset)
	proxy.Cut(pgproxy.Reset)
	await(t, "the end of the call's context: no other process sees this one any more", running.Done())
	b.release <- errors.New("canceled")
	a := await(t, "the caller", answers)
	if a.err == nil || !idem.Retryable(a.err) {
		t.Errorf("the caller got %v", a.err)
	}
	behind.work(t, b) // which begins in the middle of it
	proxy.Admit()
	b.release <- nil
	eventually(t, "the operation to end", s.completed(1))
	s.wantBlocked()
}

// completed returns a condition that n operations have completed.
func (s *shop) completed(n int) func() bool {
	return func() bool { return s.count(`select count(*) from idem.operations where state = 'completed'`) == n }
}

// A signal makes an operation due long before its wake_at. The Worker that claims it loses the
// answer of the claim, or of the next statement.
func TestWorker_RecoversAClaimWhoseAnswerIsLost(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]struct {
		at  pgproxy.Point
		how pgproxy.Action
	}{
		"the answer of the statement that claims it": {pgproxy.AfterAnswer(pgproxy.Contains("TakeOperations"), "UPDATE 1"), pgproxy.Reset},
		"what is asked for behind it":                {pgproxy.Before(pgproxy.Contains("LoadSteps")), pgproxy.Reset},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			d := decision("approve")
			id := s.waits(t, d, "k")
			proxy := pgtest.Proxy(t, s.dsn)
			trap := proxy.Arm(lost.at, lost.how)
			s.through(proxy, maxConns(1)).work(t, d)
			must(t, operation.Signal(t.Context(), s.pool, id, "approve", "yes"))
			await(t, "the loss", trap.Fired())
			eventually(t, "the operation to end", s.completed(1))
		})
	}
}

// A Worker is taken for dead between its claim and its reading of the steps, and another process
// begins the call. The Worker does not make the call, too.
func TestWorker_DoesNotReadTheStepsOfALaterClaim(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	var made atomic.Int32
	begun, answer := make(chan struct{}), make(chan struct{})
	d := define(func(op *operation.Op) error {
		if err := operation.Sleep(op, "pause", time.Hour); err != nil {
			return err
		}
		calls := operation.Parallel(op)
		operation.Go(calls, "charge", keyed, func(context.Context, string) (string, error) {
			if made.Add(1) == 1 {
				close(begun)
				<-answer
			}
			return "receipt", nil
		})
		return calls.Wait()
	})
	id := start(s, d, "")
	runAgain(s, d, id)
	proxy := pgtest.Proxy(t, s.dsn)
	trap := proxy.Arm(pgproxy.AfterAnswer(pgproxy.Contains("TakeOperations"), "UPDATE 1"), pgproxy.Freeze)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	worker := operation.NewWorker(s.through(proxy).pool, operation.WorkerConfig{}, d)
	go func() { ended <- worker.Run(ctx) }()
	s.elapse()
	frozen := await(t, "the claim of the Worker", trap.Fired()).Conn
	s.exec(`update idem.operations set owner = null, wake_at = now()`) // waits for the COMMIT of the claim
	resumed := make(chan error, 1)
	go func() { resumed <- d.Resume(t.Context(), s.pool, id) }()
	await(t, "the call", begun)
	loaded := proxy.Next(pgproxy.Answered, pgproxy.Contains("LoadSteps"))
	frozen.Resume()
	await(t, "the steps", loaded)
	stop()
	must(t, await(t, "the end of the Worker", ended))
	close(answer)
	must(t, await(t, "the end of the operation", resumed))
	if n := made.Load(); n != 1 {
		t.Errorf("the call was made %d times", n)
	}
}

// The time at which a signal was sent counts, not the time at which a process finds it.
func TestSignal_CountsByWhenItWasSent(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	d := operation.Define("decision", func(op *operation.Op, _ string) (idem.Response, error) {
		value, err := operation.Await[string](op, "approve", 20*time.Hour)
		if errors.Is(err, operation.ErrTimeout) {
			value, err = "no approval", nil
		}
		return idem.Response{Status: 200, Body: []byte(value)}, err
	})
	for key, late := range map[string]bool{"late": true, "in time": false} {
		id := s.waits(t, d, key)
		if late {
			s.elapse()
		}
		must(t, operation.Signal(t.Context(), s.pool, id, "approve", "yes"))
		if !late {
			s.exec(`update idem.signals set sent_at = sent_at - interval '1 day' where operation_id = $1`, id)
			s.elapse()
		}
		want := map[bool]string{true: "no approval", false: "yes"}[late]
		wantBody(t, want)(d.Do(t.Context(), s.pool, scope, key, hashA, "", idem.WithWait(limit)))
	}
}
