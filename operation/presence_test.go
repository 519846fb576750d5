package operation_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/operation"
)

// blocked is an operation whose call blocks until the test releases it.
type blocked struct {
	*operation.Definition[int]
	policy  operation.Policy
	calls   atomic.Int64
	begun   chan context.Context
	release chan error
}

func newBlocked(s *shop, policy operation.Policy) *blocked {
	b := &blocked{begun: make(chan context.Context, 8), release: make(chan error, 8)}
	b.policy = policy
	b.Definition = operation.Define("blocked", b.function(s))
	return b
}

func (b *blocked) function(s *shop) func(op *operation.Op, _ int) (idem.Response, error) {
	return func(op *operation.Op, _ int) (idem.Response, error) {
		if err := localStep(op, "before"); err != nil {
			return idem.Response{}, err
		}
		_, err := operation.Call(op, "call", b.policy, func(ctx context.Context, key string) (string, error) {
			b.calls.Add(1)
			b.begun <- ctx
			if err := <-b.release; err != nil {
				return "", err
			}
			return s.bank.charge(ctx, key)
		})
		if err != nil {
			return idem.Response{}, err
		}
		return created, localStep(op, "after")
	}
}

// call makes a call in a goroutine.
func (b *blocked) call(ctx context.Context, s *shop, opts ...idem.Option) <-chan answer {
	answers := make(chan answer, 1)
	go func() {
		res, err := b.Do(ctx, s.pool, scope, "k", hashA, 0, opts...)
		answers <- answer{res, err}
	}()
	return answers
}

type answer struct {
	idem.Result
	err error
}

func (s *shop) wantBlocked() {
	s.t.Helper()
	if did := s.did(); len(did) != 2 || did[0] != "before" || did[1] != "after" {
		s.t.Errorf("what is committed is %v", did)
	}
	if n, _ := s.bank.keys(); n != 1 {
		s.t.Errorf("the bank was charged under %d keys", n)
	}
}

func TestDo_InProgressForOtherCalls(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	elsewhere := shopOn(t, s.dsn) // as another process would see it
	b := newBlocked(s, operation.Keyed(time.Hour))
	answers := b.call(t.Context(), s)
	await(t, "the call", b.begun)
	for _, pool := range []*pgxpool.Pool{s.pool, elsewhere.pool} {
		if _, err := b.Do(t.Context(), pool, scope, "k", hashA, 0, idem.WithWait(0)); !errors.Is(err, idem.ErrInProgress) {
			t.Errorf("an operation: %v", err)
		}
		if _, err := b.Do(t.Context(), pool, scope, "k", hashB, 0, idem.WithWait(0)); !errors.Is(err, idem.ErrMismatch) && !errors.Is(err, idem.ErrInProgress) {
			t.Errorf("an operation with another hash: %v", err)
		}
		if _, err := idem.Do(t.Context(), pool, scope, "k", hashA, nothing, idem.WithWait(0)); !errors.Is(err, idem.ErrInProgress) {
			t.Errorf("Do: %v", err)
		}
		if _, err := idem.Do(t.Context(), pool, scope, "k", hashA, nothing, idem.WithWait(10*time.Millisecond), idem.WithReplayLikely()); !errors.Is(err, idem.ErrInProgress) {
			t.Errorf("Do with a wait: %v", err)
		}
		tx, err := pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := idem.DoTx(t.Context(), tx, scope, "k", hashA, nothing); !errors.Is(err, idem.ErrInProgress) {
			t.Errorf("DoTx: %v", err)
		}
		if _, err := idem.DoTx(t.Context(), tx, scope, "k", hashB, nothing); !errors.Is(err, idem.ErrMismatch) {
			t.Errorf("DoTx with another hash: %v", err)
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Error(err)
		}
	}
	entry, err := idem.Lookup(t.Context(), s.pool, scope, "k")
	if err != nil || entry.State != idem.StateProcessing || entry.ExecutionID == "" || !entry.ExpiresAt.IsZero() {
		t.Errorf("%+v, %v", entry, err)
	}
	waiting := b.call(t.Context(), elsewhere, idem.WithWait(limit))
	b.release <- nil
	first, second := await(t, "the first answer", answers), await(t, "the second answer", waiting)
	if first.err != nil || second.err != nil || first.Replayed || !second.Replayed {
		t.Errorf("%+v, %+v", first, second)
	}
	s.wantBlocked()
}

func nothing(pgxTx) (idem.Response, error) { return created, nil }

// A process that has lost the epoch commits nothing any more, and says nothing either: its caller gets the answer of the one that has it.
func TestFence_ZombieCommitsNothing(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	b := newBlocked(s, operation.Keyed(time.Hour))
	answers := b.call(t.Context(), s, idem.WithWait(limit))
	await(t, "the call", b.begun)
	const steal = `update idem.operations set epoch = epoch + 1, owner = null, wake_at = clock_timestamp() + interval '1 hour'`
	if _, err := s.pool.Exec(t.Context(), steal); err != nil {
		t.Fatal(err)
	}
	b.release <- nil // the zombie goes on to its Tx, and to a COMMIT that is refused
	eventually(t, "the zombie to be done", func() bool { n, _ := s.bank.keys(); return n == 1 && s.pool.Stat().AcquiredConns() == 0 })
	if did := s.did(); len(did) != 1 {
		t.Errorf("%v is committed", did)
	}
	select {
	case a := <-answers:
		t.Fatalf("the zombie's caller got %+v", a)
	default:
	}
	if _, err := s.pool.Exec(t.Context(), `update idem.operations set wake_at = clock_timestamp()`); err != nil {
		t.Fatal(err)
	}
	b.release <- nil
	if a := await(t, "the answer", answers); a.err != nil {
		t.Fatal(a.err)
	}
	s.wantBlocked()
}

func TestDo_CallerThatLeavesReleases(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	b := newBlocked(s, operation.Keyed(time.Hour))
	ctx, leave := context.WithCancel(t.Context())
	answers := b.call(ctx, s)
	running := await(t, "the call", b.begun)
	leave()
	await(t, "the end of the call's context", running.Done())
	b.release <- errors.New("canceled")
	a := await(t, "the caller", answers)
	if !errors.Is(a.err, context.Canceled) || !errors.Is(a.err, idem.ErrInProgress) {
		t.Errorf("the caller got %v", a.err)
	}
	if n := s.count(`select count(*) from idem.operations where owner is null and wake_at <= clock_timestamp() and state = 'running'`); n != 1 {
		t.Error("the operation is not free for the next process")
	}
	b.release <- nil
	if _, err := b.Do(t.Context(), s.pool, scope, "k", hashA, 0); err != nil {
		t.Fatal(err)
	}
	s.wantBlocked()
}

// The outcome of a call is recorded although its caller has left, and the call is not made again.
func TestCall_OutcomeIsKeptWhenTheCallerLeaves(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	b := newBlocked(s, operation.Once)
	ctx, leave := context.WithCancel(t.Context())
	answers := b.call(ctx, s)
	await(t, "the call", b.begun)
	leave()
	b.release <- nil
	if a := await(t, "the caller", answers); !errors.Is(a.err, context.Canceled) {
		t.Errorf("the caller got %v", a.err)
	}
	if _, err := b.Do(t.Context(), s.pool, scope, "k", hashA, 0); err != nil {
		t.Fatal(err)
	}
	if n := b.calls.Load(); n != 1 {
		t.Errorf("%d calls", n)
	}
	s.wantBlocked()
}

// A call returns to a process that has lost the operation meanwhile. When the process claims the operation again, the outcome is still known.
func TestCall_OutcomeIsKeptWhenTheOperationWasLost(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	b := newBlocked(s, operation.Once)
	answers := b.call(t.Context(), s, idem.WithWait(0))
	await(t, "the call", b.begun)
	if _, err := s.pool.Exec(t.Context(), `update idem.operations set epoch = epoch + 1, owner = null`); err != nil { // as if another process had claimed and released it
		t.Fatal(err)
	}
	b.release <- nil
	if a := await(t, "the caller", answers); !errors.Is(a.err, idem.ErrInProgress) {
		t.Errorf("the caller got %v", a.err)
	}
	if _, err := b.Do(t.Context(), s.pool, scope, "k", hashA, 0, idem.WithWait(limit)); err != nil {
		t.Fatal(err)
	}
	if n := b.calls.Load(); n != 1 {
		t.Errorf("%d calls", n)
	}
	s.wantBlocked()
}

const presences = `select count(*) from pg_stat_activity where application_name = 'idem presence' and datname = current_database()`

// The session is gone and the process is not: as after a failover. It stops what it was doing, and comes back under a new number.
func TestPresence_LostComesBackAsANewInstance(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	b := newBlocked(s, operation.Keyed(time.Hour))
	answers := b.call(t.Context(), s)
	running := await(t, "the call", b.begun)
	if n := s.count(presences); n != 1 {
		t.Fatalf("%d presences", n)
	}
	first := s.count(`select owner from idem.operations`)
	s.count(`select count(pg_terminate_backend(pid)) from pg_stat_activity where application_name = 'idem presence' and datname = current_database()`)
	await(t, "the end of the call's context", running.Done())
	b.release <- errors.New("canceled")
	await(t, "the second call", b.begun)
	if second := s.count(`select owner from idem.operations`); second == first || s.count(presences) != 1 {
		t.Errorf("the process was instance %d, and is %d", first, second)
	}
	b.release <- nil
	if a := await(t, "the answer", answers); a.err != nil {
		t.Fatal(a.err)
	}
	s.wantBlocked()
}

func TestPresence_EndsWhenIdle(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	if _, err := s.checkout().Do(t.Context(), s.pool, scope, "k", hashA, "book"); err != nil {
		t.Fatal(err)
	}
	if n := s.count(presences); n != 1 {
		t.Errorf("%d presences", n)
	}
	eventually(t, "the session to end", func() bool { return s.count(presences) == 0 })
}

// Work in one transaction needs no presence.
func TestPresence_NotNeededForOneTransaction(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	d := operation.Define("one", func(op *operation.Op, _ int) (idem.Response, error) { return created, localStep(op, "only") })
	if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0); err != nil {
		t.Fatal(err)
	}
	if n := s.count(presences) + s.count(`select count(*) from idem.operations`); n != 0 {
		t.Errorf("%d presences and operations", n)
	}
}

// pooled is a connection as a pooler gives it: the server reports another process number than the client got.
type pooled struct {
	net.Conn
	told bool
}

func (c *pooled) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if i := bytes.Index(b[:n], []byte("K\x00\x00\x00\x0c")); i >= 0 && !c.told {
		c.told = true
		b[i+5] ^= 0x7f
	}
	return n, err
}

func behindPooler(c *pgxpool.Config) {
	dial := c.ConnConfig.DialFunc
	c.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		return &pooled{Conn: conn}, err
	}
}

// Behind a pooler a session has no owner, and a lock on it would outlive the process: there is a lease instead.
func TestLease_BehindAPooler(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	behind := shopOn(t, s.dsn, behindPooler)
	b := newBlocked(s, operation.Keyed(time.Hour))
	answers := b.call(t.Context(), behind)
	await(t, "the call", b.begun)
	if n := s.count(`select count(*) from pg_locks where locktype = 'advisory' and objsubid = 2 and database = (select oid from pg_database where datname = current_database())`); n != 0 {
		t.Errorf("%d locks are held", n)
	}
	if n := s.count(`select count(*) from idem.leases l join idem.operations o on o.owner = l.instance where l.expires_at > clock_timestamp()`); n != 1 {
		t.Errorf("%d leases", n)
	}
	if _, err := b.Do(t.Context(), s.pool, scope, "k", hashA, 0, idem.WithWait(0)); !errors.Is(err, idem.ErrInProgress) {
		t.Errorf("the lease does not count: %v", err)
	}
	if _, err := s.pool.Exec(t.Context(), `update idem.leases set expires_at = clock_timestamp()`); err != nil {
		t.Fatal(err)
	}
	b.release <- nil
	b.release <- nil
	if _, err := b.Do(t.Context(), s.pool, scope, "k", hashA, 0, idem.WithWait(limit)); err != nil {
		t.Errorf("an expired lease counts: %v", err)
	}
	if a := await(t, "the first caller", answers); a.err != nil {
		t.Error(a.err)
	}
	s.wantBlocked()
}

// A process that claims an operation fences off its former owner.
func TestFence_ClaimFencesOffTheOwnerBefore(t *testing.T) {
	t.Parallel()
	for name, takeUp := range map[string]func(t *testing.T, s *shop, b *blocked){
		"a call":   func(t *testing.T, s *shop, b *blocked) { b.call(t.Context(), s, idem.WithWait(limit)) },
		"a worker": func(t *testing.T, s *shop, b *blocked) { s.work(t, b) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			slow, quick := newBlocked(s, operation.Keyed(time.Hour)), newBlocked(s, operation.Keyed(time.Hour))
			answers := slow.call(t.Context(), s, idem.WithWait(limit))
			await(t, "the call", slow.begun)
			if _, err := s.pool.Exec(t.Context(), `update idem.operations set owner = null`); err != nil { // as if it were dead
				t.Fatal(err)
			}
			takeUp(t, shopOn(t, s.dsn), quick)
			await(t, "the call of the process that has taken it up", quick.begun)
			slow.release <- nil
			eventually(t, "the zombie to be done", func() bool { n, _ := s.bank.keys(); return n == 1 && s.pool.Stat().AcquiredConns() == 0 })
			if did := s.did(); len(did) != 1 {
				t.Errorf("the zombie has committed: %v", did)
			}
			quick.release <- nil
			if a := await(t, "the answer", answers); a.err != nil {
				t.Error(a.err)
			}
			s.wantBlocked()
		})
	}
}
