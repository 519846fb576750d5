package idemriver_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/adapter/idemriver"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/operation"
)

const jobs = `SELECT count(*) FROM river_job WHERE kind = 'idem_operation'`

// simple returns the definition of an operation without steps.
func simple() *idemriver.Definition[string] {
	return idemriver.Define("simple", func(op *operation.Op, in string) (idem.Response, error) {
		return idem.Response{Status: 201, Body: []byte(in)}, nil
	})
}

func TestDefinition_StartsOperationAndJobInOneTx(t *testing.T) {
	t.Parallel()
	_, pool := newDatabase(t)
	d := simple()
	d.InsertOpts = river.InsertOpts{Queue: "payments", Priority: 2}
	client := newClient(t, pool, idemriver.NewWorker(pool, idemriver.Config{}, d))
	errUndone := errors.New("undone")
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		if _, err := d.Start(t.Context(), client, tx, scope, "k", hash, "in"); err != nil {
			return err
		}
		return errUndone
	})
	if n := count(t, pool, jobs) + count(t, pool, `SELECT count(*) FROM idem.operations`); n != 0 || !errors.Is(err, errUndone) {
		t.Errorf("%d rows are left of a rollback, %v", n, err)
	}
	id := start(t, pool, client, d, "k", "in")
	if again := start(t, pool, client, d, "k", "in"); again != id {
		t.Errorf("the ids are %s and %s", id, again)
	}
	if n := count(t, pool, jobs+` AND queue = 'payments' AND priority = 2`); n != 1 {
		t.Errorf("%d jobs", n)
	}
	if n := count(t, pool, jobs+` AND (args::text LIKE '%tenant%' OR args::text LIKE '%"in"%')`); n != 0 {
		t.Error("the job carries more than the id")
	}
}

func TestWorker_RunsChildAndParent(t *testing.T) {
	t.Parallel()
	_, pool := newDatabase(t)
	child := idemriver.Define("child", func(op *operation.Op, in string) (idem.Response, error) {
		return idem.Response{Status: 201, Body: []byte("child of " + in)}, nil
	})
	parent := idemriver.Define("parent", func(op *operation.Op, in string) (idem.Response, error) {
		return operation.Child(op, "begin", child.Operation(), in)
	})
	w := idemriver.NewWorker(pool, idemriver.Config{}, child, parent)
	client := newClient(t, pool, w)
	start(t, pool, client, parent, "k", "teapot")
	run(t, client, w)
	eventually(t, "both to end", func() bool {
		return count(t, pool, `SELECT count(*) FROM idem.operations WHERE state = 'completed'`) == 2
	})
	res, err := parent.Do(t.Context(), pool, scope, "k", hash, "teapot")
	if err != nil || string(res.Body) != "child of teapot" {
		t.Errorf("%s, %v", res.Body, err)
	}
}

// Several processes insert one job for a due operation, and another one if that job had no result.
func TestWatch_InsertsOneJobForADueOperation(t *testing.T) {
	t.Parallel()
	_, pool := newDatabase(t)
	d := simple()
	client := newClient(t, pool, idemriver.NewWorker(pool, idemriver.Config{}, d))
	start(t, pool, client, d, "k", "in")
	look := func(patience time.Duration, want int) {
		t.Helper()
		for range 3 { // processes
			w := idemriver.NewWorker(pool, idemriver.Config{}, d)
			w.SetStartLimit(patience)
			l := idemriver.NewWatcher(w)
			for range 3 {
				if err := l.InsertDue(t.Context(), client); err != nil {
					t.Fatal(err)
				}
			}
		}
		if n := count(t, pool, jobs); n != want {
			t.Errorf("%d jobs, want %d", n, want)
		}
	}
	look(time.Hour, 1) // the job of Start
	look(0, 1)         // it has not begun
	if _, err := pool.Exec(t.Context(), `UPDATE river_job SET state = 'running', attempted_at = now()`); err != nil {
		t.Fatal(err)
	}
	look(time.Hour, 1) // it has begun, and may start the operation
	look(0, 2)         // it has not started the operation in time
	if _, err := pool.Exec(t.Context(), `UPDATE idem.operations SET epoch = epoch + 1`); err != nil {
		t.Fatal(err)
	}
	look(time.Hour, 3) // an epoch has begun and ended
	for _, sql := range []string{
		`UPDATE idem.operations SET epoch = epoch + 1, wake_at = clock_timestamp() + interval '1 hour'`,
		`UPDATE idem.operations SET epoch = epoch + 1, wake_at = clock_timestamp(), state = 'parked'`,
	} {
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
		look(time.Hour, 3)
	}
}

func TestWorker_CompletesTheJobOfAWaitingOperation(t *testing.T) {
	t.Parallel()
	_, pool := newDatabase(t)
	d := idemriver.Define("approve", func(op *operation.Op, in string) (idem.Response, error) {
		by, err := operation.Await[string](op, "approved", 24*time.Hour)
		return idem.Response{Status: 201, Body: []byte(by)}, err
	})
	w := idemriver.NewWorker(pool, idemriver.Config{}, d)
	client := newClient(t, pool, w)
	id := start(t, pool, client, d, "k", "in")
	run(t, client, w)
	eventually(t, "the job to be over", func() bool { return count(t, pool, jobs+` AND state = 'completed'`) == 1 })
	if n := count(t, pool, `SELECT count(*) FROM idem.operations WHERE state = 'running' AND step = 'approved' AND owner IS NULL`); n != 1 {
		t.Error("it does not wait")
	}
	if err := operation.Signal(t.Context(), pool, id, "approved", "Ada"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the operation to end", func() bool {
		return count(t, pool, `SELECT count(*) FROM idem.operations WHERE state = 'completed'`) == 1
	})
}

// After Resolve, Watch inserts another job.
func TestWorker_CancelsTheJobOfAParkedOperation(t *testing.T) {
	t.Parallel()
	_, pool := newDatabase(t)
	calls := 0
	d := idemriver.Define("once", func(op *operation.Op, in string) (idem.Response, error) {
		_, err := operation.Call(op, "call", operation.Once, func(context.Context, string) (string, error) {
			calls++
			return "", errors.New("no answer")
		})
		return created, err
	})
	w := idemriver.NewWorker(pool, idemriver.Config{}, d)
	client := newClient(t, pool, w)
	id := start(t, pool, client, d, "k", "in")
	run(t, client, w)
	eventually(t, "the job to be cancelled", func() bool {
		return count(t, pool, jobs+` AND state = 'cancelled' AND errors[1]->>'error' LIKE '%must not happen twice%'`) == 1
	})
	if err := d.Resolve(t.Context(), pool, id, operation.Happened("yes")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the operation to end", func() bool {
		return count(t, pool, `SELECT count(*) FROM idem.operations WHERE state = 'completed'`) == 1
	})
	if calls != 1 {
		t.Errorf("%d calls", calls)
	}
}

// A job with an unknown definition is snoozed. A job without its operation completes.
func TestWorker_SnoozesAnUnknownDefinition(t *testing.T) {
	t.Parallel()
	_, pool := newDatabase(t)
	w := idemriver.NewWorker(pool, idemriver.Config{}, simple())
	job := func(name string) *river.Job[idemriver.Job] {
		return &river.Job[idemriver.Job]{JobRow: &rivertype.JobRow{}, Args: idemriver.Job{Operation: "0193c1a0-5a9e-7bbd-8e01-3f1f5f3b2a10", Name: name}}
	}
	var snooze *rivertype.JobSnoozeError
	if err := w.Work(t.Context(), job("another")); !errors.As(err, &snooze) || snooze.Duration < time.Second {
		t.Errorf("%v", err)
	}
	if err := w.Work(t.Context(), job("simple")); err != nil {
		t.Error(err)
	}
}

// During a long call, Watch inserts no job, and another job leaves the operation alone.
func TestWorker_IgnoresAnOperationOfALiveProcess(t *testing.T) {
	t.Parallel()
	dsn, pool := newDatabase(t)
	begun, release := make(chan struct{}, 2), make(chan struct{})
	d := idemriver.Define("long", func(op *operation.Op, in string) (idem.Response, error) {
		_, err := operation.Call(op, "call", operation.Keyed(time.Hour), func(context.Context, string) (bool, error) {
			begun <- struct{}{}
			<-release
			return true, nil
		})
		return created, err
	})
	w := idemriver.NewWorker(pool, idemriver.Config{}, d)
	client := newClient(t, pool, w)
	id := start(t, pool, client, d, "k", "in")
	run(t, client, w)
	<-begun
	other := idemriver.NewWorker(pgtest.Open(t, dsn), idemriver.Config{}, d) // a pool of its own counts as another process
	if err := idemriver.NewWatcher(other).InsertDue(t.Context(), client); err != nil {
		t.Fatal(err)
	}
	if n := count(t, pool, jobs); n != 1 {
		t.Errorf("%d jobs", n)
	}
	worked := make(chan error, 1)
	go func() {
		worked <- other.Work(t.Context(), &river.Job[idemriver.Job]{JobRow: &rivertype.JobRow{}, Args: idemriver.Job{Operation: id, Name: "long", Epoch: 1}})
	}()
	select {
	case err := <-worked:
		if err != nil {
			t.Error(err)
		}
	case <-begun:
		t.Error("two work on it at once")
	}
	close(release)
	eventually(t, "the operation to end", func() bool {
		return count(t, pool, `SELECT count(*) FROM idem.operations WHERE state = 'completed'`) == 1
	})
}
