package operation_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/operation"
)

// companyOf makes the test binary a process with a Worker. One kind of its operations kills it.
const companyOf = "IDEM_TEST_COMPANY_OF"

const companyDeaths = 5

// company returns the definitions of such a process: a killer, and operations that take longer than the killer lets them live.
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
		d := operation.Define(name, func(*operation.Op, string) (idem.Response, error) { return created, nil })
		if _, err := s.start(d, fmt.Sprint("k", i), hashA, true); err != nil {
			t.Fatal(err)
		}
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
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
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
	if n := s.count(`select count(*) from bank`); n != innocents {
		t.Errorf("%d calls are made, want %d", n, innocents)
	}
}

// Callers that leave, errors and panics are no deaths.
func TestDeaths_OthersDoNotCount(t *testing.T) {
	t.Parallel()
	const times = 25
	sealed := sealerOf(7)
	for name, test := range map[string]struct {
		do   func(d *operation.Definition[string], s *shop, ctx context.Context, id string) error
		want error
	}{
		"its callers leave": {func(d *operation.Definition[string], s *shop, ctx context.Context, _ string) error {
			_, err := d.Do(ctx, s.pool, scope, "k", hashA, "", sealed)
			return err
		}, context.Canceled},
		"its function fails": {func(d *operation.Definition[string], s *shop, _ context.Context, id string) error {
			return d.Resume(context.Background(), s.pool, id, sealed)
		}, errTimeout},
		"no process has its key": {func(d *operation.Definition[string], s *shop, _ context.Context, id string) error {
			return d.Resume(context.Background(), s.pool, id)
		}, idem.ErrUnreadable},
		"its definition is another one": {func(_ *operation.Definition[string], s *shop, _ context.Context, id string) error {
			if err := s.checkout().Resume(context.Background(), s.pool, id, sealed); err == nil || !strings.Contains(err.Error(), "not") {
				return err
			}
			return errDeclined
		}, errDeclined},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			fails := true
			leave := func() {}
			d := operation.Define("tried", func(op *operation.Op, _ string) (idem.Response, error) {
				if fails {
					leave()
					return idem.Response{}, cmp.Or(op.Checkpoint(), errTimeout)
				}
				return created, nil
			}, operation.WithMaxDeaths(2))
			tx, err := s.pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			id, err := d.Start(t.Context(), tx, scope, "k", hashA, "", sealed)
			if err := errors.Join(err, tx.Commit(t.Context())); err != nil {
				t.Fatal(err)
			}
			for range times {
				ctx, cancel := context.WithCancel(t.Context())
				if test.want == context.Canceled {
					leave = cancel
				}
				if err := test.do(d, s, ctx, id); !errors.Is(err, test.want) {
					t.Fatalf("got %v, want %v", err, test.want)
				}
				cancel()
				if _, err := s.pool.Exec(t.Context(), `update idem.operations set wake_at = clock_timestamp()`); err != nil {
					t.Fatal(err)
				}
			}
			fails = false
			if err := d.Resume(t.Context(), s.pool, id, sealed); err != nil {
				t.Errorf("%v, after %d times", err, times)
			}
		})
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
	id, err := s.start(d, "k", hashA, true)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := s.pool.Exec(t.Context(), `update idem.operations set owner = 2147483647, wake_at = clock_timestamp()`); err != nil { // who is not there
			t.Fatal(err)
		}
		err = d.Resume(t.Context(), s.pool, id)
	}
	var parked *operation.ParkedError
	if !errors.As(err, &parked) || parked.Reason != operation.ReasonTooManyDeaths || ran != 1 {
		t.Errorf("%v, after %d runs", err, ran)
	}
	if err := operation.Retry(t.Context(), s.pool, id); err != nil { // which begins the count anew
		t.Fatal(err)
	}
	if err := d.Resume(t.Context(), s.pool, id); !errors.Is(err, errTimeout) {
		t.Error(err)
	}
}

// A process works on one suspect at a time. A suspect whose attempt has failed passes its turn on.
func TestSuspect_PassesItsTurnOn(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	silent := operation.Define("silent", func(op *operation.Op, _ string) (idem.Response, error) {
		_, err := operation.Call(op, "ask", operation.Keyed(time.Hour).WithBackoff(time.Millisecond, 20*time.Millisecond), func(context.Context, string) (int, error) {
			return 0, errors.New("no answer")
		})
		return created, err
	})
	quick := operation.Define("quick", func(op *operation.Op, _ string) (idem.Response, error) {
		return created, outsideStep(op, "ask")
	})
	for i := range 3 {
		for name, d := range map[string]*operation.Definition[string]{"silent": silent, "quick": quick} {
			if _, err := s.start(d, fmt.Sprint(name, i), hashA, true); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := s.pool.Exec(t.Context(), `update idem.operations set attempts = 1, deaths = 5, epoch = 2,
		wake_at = clock_timestamp() - case name when 'silent' then interval '1 h' else interval '0' end`); err != nil {
		t.Fatal(err)
	}
	s.work(t, silent, quick)
	eventually(t, "those that get an answer to end", func() bool {
		return s.count(`select count(*) from idem.operations where name = 'quick' and state = 'completed'`) == 3
	})
	if n := s.count(`select count(*) from idem.operations where name = 'silent' and state = 'running'`); n != 3 {
		t.Errorf("%d of the others go on", n)
	}
}
