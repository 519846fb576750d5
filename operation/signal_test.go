package operation_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/operation"
	"github.com/idem-go/idem/seal"
)

// decision waits for a signal, and answers with its value.
func decision(name string) *operation.Definition[string] {
	return operation.Define("decision", func(op *operation.Op, _ string) (idem.Response, error) {
		value, err := operation.Await[string](op, name, 20*time.Hour)
		return idem.Response{Status: 200, Body: []byte(value)}, err
	})
}

// waits begins an operation that waits for its signal, and returns its id.
func (s *shop) waits(t *testing.T, d *operation.Definition[string], key string, opts ...idem.Option) string {
	t.Helper()
	_, err := d.Do(t.Context(), s.pool, scope, key, hashA, "", append(opts, idem.WithWait(0))...)
	if !errors.Is(err, idem.ErrInProgress) {
		t.Fatal(err)
	}
	return s.text(`select id::text from idem.operations where key = $1`, key)
}

func sealerOf(key byte) idem.Option {
	return idem.WithSealer(seal.New(seal.Keys{Primary: "k1", Secrets: map[string][]byte{"k1": bytes.Repeat([]byte{key}, 32)}}))
}

// Signal through a pool survives a database that is serializable by default.
func TestSignal_IsSentAgainAfterASerializationFailure(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	id := s.waits(t, decision("approve"), "key")
	strict := pgtest.Open(t, s.dsn, func(c *pgxpool.Config) {
		c.ConnConfig.RuntimeParams["default_transaction_isolation"] = "serializable"
		c.ConnConfig.RuntimeParams["application_name"] = "strict"
	})
	tx, err := s.pool.Begin(t.Context())
	must(t, err)
	must(t, operation.Signal(t.Context(), tx, id, "approve", "first"))
	sent := make(chan error, 1)
	go func() { sent <- operation.Signal(context.Background(), strict, id, "approve", "second") }()
	eventually(t, "the second one to wait for the first", func() bool {
		return s.count(`select count(*) from pg_stat_activity where application_name = 'strict' and wait_event_type = 'Lock' and datname = current_database()`) > 0
	})
	must(t, tx.Commit(t.Context()))
	if err := await(t, "the second signal", sent); err != nil {
		t.Error(err)
	}
}

// A signal is sealed like a value.
func TestSignal_IsSealedAndBound(t *testing.T) {
	t.Parallel()
	s, sealed := newShop(t), sealerOf(7)
	d := decision("approve")
	mine, other := s.waits(t, d, "mine", sealed), s.waits(t, d, "other", sealed)
	send := func(id, name, value string) {
		t.Helper()
		must(t, operation.Signal(t.Context(), s.pool, id, name, value, sealed))
	}
	send(mine, "approve", "a secret yes")
	send(other, "approve", "another secret")
	const readable = `position('secret'::bytea in value) > 0`
	s.wantCount(0, `select count(*) from idem.signals where `+readable)
	swap := `update idem.signals set value = (select value from idem.signals where operation_id = '` + other + `') where operation_id = $1 and name = 'approve'`
	s.exec(swap, mine)
	s.exec(`update idem.operations set wake_at = clock_timestamp()`) // the pause is over
	if _, err := d.Do(t.Context(), s.pool, scope, "mine", hashA, "", sealed, idem.WithWait(0)); !errors.Is(err, idem.ErrUnreadable) {
		t.Errorf("with the value of another operation: %v", err)
	}
	wantBody(t, "another secret")(d.Do(t.Context(), s.pool, scope, "other", hashA, "", sealed, idem.WithWait(0)))
	s.wantCount(0, `select count(*) from idem.steps where `+readable)
}

// An unsealed signal would count as sent, and the operation could not read it.
func TestSignal_UnsealedIsRefusedByASealedOperation(t *testing.T) {
	t.Parallel()
	s, sealed := newShop(t), sealerOf(7)
	d := decision("approve")
	id, plain := s.waits(t, d, "sealed", sealed), s.waits(t, d, "plain")
	if err := operation.Signal(t.Context(), s.pool, id, "approve", "plain"); !errors.Is(err, operation.ErrUnsealed) {
		t.Errorf("got %v", err)
	}
	must(t, operation.Signal(t.Context(), s.pool, id, "approve", "sealed", sealed))
	must(t, operation.Signal(t.Context(), s.pool, plain, "approve", "plain"))
	s.exec(`update idem.operations set wake_at = clock_timestamp()`)
	for key, opts := range map[string][]idem.Option{"sealed": {sealed}, "plain": nil} {
		wantBody(t, key)(d.Do(t.Context(), s.pool, scope, key, hashA, "", opts...))
	}
	if err := operation.Signal(t.Context(), s.pool, id, "approve", "plain"); err != nil {
		t.Errorf("for an operation that has ended: %v", err)
	}
}

// While an operation is parked because a signal does not decode, another signal of that name
// replaces it. A signal that was received is not replaced.
func TestSignal_UnreadableIsReplacedByTheNext(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	d := operation.Define("amount", func(op *operation.Op, _ string) (idem.Response, error) {
		err := operation.Sleep(op, "amount", 20*time.Hour)
		amount, other := operation.Await[int](op, "amount", 20*time.Hour)
		return idem.Response{Status: 200, Body: fmt.Append(nil, amount)}, first(err, other, operation.Sleep(op, "then", 20*time.Hour))
	})
	id := s.waits(t, d, "k")
	send := func(value any) {
		t.Helper()
		must(t, operation.Signal(t.Context(), s.pool, id, "amount", value))
	}
	parks := func() {
		t.Helper()
		want(t, operation.ErrParked)(d.Do(t.Context(), s.pool, scope, "k", hashA, ""))
	}
	retry := func() {
		t.Helper()
		must(t, operation.Retry(t.Context(), s.pool, id))
	}
	send("seven")
	send(5) // the first of a name counts
	s.elapse()
	parks()
	send("eight")
	retry()
	parks()
	send(7)
	retry()
	send(9) // it is on its way
	s.waits(t, d, "k")
	send(10) // it has received the one before
	s.elapse()
	wantBody(t, "7")(d.Do(t.Context(), s.pool, scope, "k", hashA, ""))
}

// elapse makes operations due that are to be due within a day, as if the clock jumped.
func (s *shop) elapse() {
	s.t.Helper()
	const day = ` - interval '1 day'`
	// Both at once: a worker that saw the first alone would put the operation to sleep anew, until
	// a moment that is not moved any more.
	s.exec(`with steps as (update idem.steps set due_at = due_at` + day + `) update idem.operations set wake_at = wake_at` + day + `, since = since` + day)
}

// isFree reports whether an operation waits and has no owner.
func (s *shop) isFree(step string) bool {
	s.t.Helper()
	return s.count(`select count(*) from idem.operations where step = $1 and owner is null and wake_at > clock_timestamp() and state = 'running'`, step) == 1
}

func TestSleep_LongFreesTheCaller(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	d := define(func(op *operation.Op) error {
		return first(localStep(op, "before"), operation.Sleep(op, "cool off", 20*time.Hour), localStep(op, "after"))
	})
	want(t, idem.ErrInProgress)(s.do(d, idem.WithWait(0)))
	if did := fmt.Sprint(s.did()); did != "[before]" || !s.isFree("cool off") {
		t.Errorf("%s is committed, asleep: %t", did, s.isFree("cool off"))
	}
	want(t, idem.ErrInProgress)(s.do(d, idem.WithWait(0))) // it is not woken early
	s.elapse()                                             // while no process is there
	want(t, nil)(s.do(d, idem.WithWait(0)))
	s.wantDid("before after")
}

// approval waits for a person to say yes or no.
func approval() *operation.Definition[string] {
	return operation.Define("approval", func(op *operation.Op, _ string) (idem.Response, error) {
		yes, err := operation.Await[bool](op, "approve", 20*time.Hour)
		if errors.Is(err, operation.ErrTimeout) {
			_, err := operation.Tx(op, "time out", write("timed out"))
			return idem.Response{Status: 408}, err
		}
		_, other := operation.Tx(op, "decide", write(fmt.Sprint("approved: ", yes)))
		return created, first(err, other)
	})
}

func TestSignal_FirstWinsAndEarlyOnesWait(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	early := s.startAll(approval(), "early")[0]
	for _, value := range []bool{true, false} {
		must(t, operation.Signal(t.Context(), s.pool, early, "approve", value))
	}
	late := s.startAll(approval(), "late")[0]
	s.work(t, approval())
	eventually(t, "both to wait", func() bool { return s.isFree("approve") })
	must(t, pgx.BeginFunc(t.Context(), s.pool, func(tx pgx.Tx) error { return operation.Signal(t.Context(), tx, late, "approve", false) }))
	eventually(t, "both to end", s.completed(2))
	for step, want := range map[string]string{early: "approved: true", late: "approved: false"} {
		if got := s.text(`select step from done where operation_id = $1`, step); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	s.wantCount(0, `select count(*) from idem.signals where not taken`)
	for _, id := range []string{unknownID, "'; drop table"} {
		want(t, operation.ErrUnknownOperation)(nil, operation.Signal(t.Context(), s.pool, id, "approve", true))
	}
}

// The signal is sent after the operation has read the signals, and before it records that it waits.
func TestSignal_BetweenLookAndWait(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	c, behind := newTraffic(t, s)
	match := pgproxy.Contains("ReadSignal")
	c.proxy.Observe(func(e pgproxy.Event) {
		if e.Stage == pgproxy.Answered && match(e.Statement) {
			must(t, operation.Signal(context.Background(), s.pool, s.operationID(), "approve", true))
		}
	})
	d := define(func(op *operation.Op) error {
		err := outsideStep(op, "ask")
		_, other := operation.Await[bool](op, "approve", 20*time.Hour)
		return first(err, other)
	})
	want(t, nil)(behind.do(d, idem.WithWait(limit)))
}
