package promises_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
)

const century = 100 * 365 * 24 * time.Hour

func TestOptionsOutOfRangeAreRefusedBeforeAnySQL(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	pool := nowhere(t)
	for _, test := range []struct {
		says string
		opts []idem.Option
	}{
		{"nil Option", []idem.Option{nil}},
		{"nil Option", []idem.Option{idem.WithTTL(time.Hour), nil}},
		{"WithTTL(0s)", []idem.Option{idem.WithTTL(0)}},
		{"WithTTL(-1h0m0s)", []idem.Option{idem.WithTTL(-time.Hour)}},
		{"WithTTL(999.999µs)", []idem.Option{idem.WithTTL(time.Millisecond - 1)}},
		{"WithTTL(876000h0m0.000000001s)", []idem.Option{idem.WithTTL(century + 1)}},
		{"WithTTL(", []idem.Option{idem.WithTTL(math.MaxInt64)}},
		{"WithTTL(", []idem.Option{idem.WithTTL(math.MinInt64)}},
		{"WithWait(-1ns)", []idem.Option{idem.WithWait(-1)}},
		{"WithRetries(-1)", []idem.Option{idem.WithRetries(-1)}},
		{"WithMaxResponse(-1)", []idem.Option{idem.WithMaxResponse(-1)}},
		{"WithMaxResponse(536870913)", []idem.Option{idem.WithMaxResponse(512<<20 + 1)}},
		{"WithName: a name has 1 to 64", []idem.Option{idem.WithName("")}},
		{"65 bytes", []idem.Option{idem.WithName(strings.Repeat("n", 65))}},
		{"WithName", []idem.Option{idem.WithName("place\norder")}},
		{"WithName", []idem.Option{idem.WithName("Bestellung für dich")}},
		{"WithName", []idem.Option{idem.WithName("a\xffb")}},
		{"read-only", []idem.Option{idem.WithTxOptions(pgx.TxOptions{AccessMode: pgx.ReadOnly})}},
		{"WithTTL(0s)", []idem.Option{idem.WithTTL(0), idem.WithTTL(time.Hour)}},     // a later valid option does not help
		{"WithTTL(0s)", []idem.Option{idem.WithTTL(0), idem.WithWait(-time.Second)}}, // the error names the first invalid option
	} {
		for name, err := range map[string]error{
			"Do":   errOf(idemDo(ctx, pool, scope, "k", hashA, neverCalled(t), test.opts...)),
			"DoTx": errOf(idem.DoTx(ctx, nil, scope, "k", hashA, neverCalled(t), test.opts...)),
			"DoJSON": func() error {
				_, _, err := idem.DoJSON(ctx, pool, scope, "k", hashA, func(pgx.Tx) (int, error) { return 0, nil }, test.opts...)
				return err
			}(),
		} {
			if err == nil || !strings.HasPrefix(err.Error(), "idem: ") || !strings.Contains(err.Error(), test.says) || idem.Retryable(err) {
				t.Errorf("%s: err = %v, want one that says %q", name, err, test.says)
			}
		}
	}
	if stat := pool.Stat(); stat.NewConnsCount() != 0 || stat.AcquireCount() != 0 {
		t.Error("the pool was asked for a connection")
	}
}

func errOf(_ idem.Result, err error) error { return err }

func TestOptionsThatHaveNoMeaningForDoTxAreNamed(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	tx := l.begin(ctx)
	for says, opts := range map[string][]idem.Option{
		"WithWait":         {idem.WithTTL(time.Hour), idem.WithWait(0)},
		"WithRetries":      {idem.WithRetries(0), idem.WithWait(time.Second)},
		"WithTxOptions":    {idem.WithTxOptions(pgx.TxOptions{})},
		"WithReplayLikely": {idem.WithReplayLikely()},
	} {
		_, err := idem.DoTx(ctx, tx, scope, "k", hashA, neverCalled(t), opts...)
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("err = %v, want one that names %s", err, says)
		}
	}
	if _, err := idem.DoTx(ctx, tx, scope, "k", hashA, l.charge("k"), idem.WithTTL(time.Hour), idem.WithMaxResponse(1000), idem.WithObserver(newWatch()), idem.WithName(`POST /orders ~`)); err != nil {
		t.Errorf("the others have a meaning: %v", err)
	}
}

// The record is kept for the TTL from its completion on, and is expired soon after.
func TestTTLCountsExactlyFromTheRecording(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	for _, test := range []struct {
		ttl  time.Duration
		opts []idem.Option
	}{
		{24 * time.Hour, nil}, // the default
		{time.Millisecond, []idem.Option{idem.WithTTL(time.Millisecond)}},
		{time.Second + time.Microsecond + 1, []idem.Option{idem.WithTTL(time.Second + time.Microsecond + 1)}},
		{time.Hour, []idem.Option{idem.WithTTL(time.Minute), idem.WithTTL(time.Hour)}}, // the last option wins
		{century, []idem.Option{idem.WithTTL(century)}},
	} {
		for how, call := range map[string]func(key string) (idem.Result, error){
			"Do": func(key string) (idem.Result, error) {
				return idemDo(ctx, l.pool, scope, key, hashA, answer(ok), test.opts...)
			},
			"DoTx": func(key string) (res idem.Result, err error) {
				err = pgx.BeginFunc(ctx, l.pool, func(tx pgx.Tx) error {
					var err error
					res, err = idem.DoTx(ctx, tx, scope, key, hashA, answer(ok), test.opts...)
					return err
				})
				return res, err
			},
			"Reject": func(key string) (idem.Result, error) {
				return idemDo(ctx, l.pool, scope, key, hashA, func(pgx.Tx) (idem.Response, error) { return ok, idem.Reject(ok) }, test.opts...)
			},
		} {
			res, err := call(how + test.ttl.String())
			if err != nil {
				t.Fatal(err)
			}
			lives := res.ExpiresAt.Sub(res.CompletedAt)
			if want := test.ttl.Truncate(time.Microsecond); lives != want {
				t.Errorf("%s: with a TTL of %v the record lives %v", how, test.ttl, lives)
			}
		}
	}
}

func TestRetriesAreCountedFromTheSecondRun(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	for want, opts := range map[int][]idem.Option{
		4: nil, // the default
		1: {idem.WithRetries(0)},
		2: {idem.WithRetries(1)},
		8: {idem.WithRetries(0), idem.WithRetries(7)},
	} {
		runs := 0
		_, err := idemDo(ctx, l.pool, scope, "k", hashA, func(pgx.Tx) (idem.Response, error) { runs++; return ok, serializationFailure }, opts...)
		if err != serializationFailure || !idem.Retryable(err) || runs != want {
			t.Errorf("%d runs, want %d; err = %v", runs, want, err)
		}
	}
}

func TestTxOptionsApplyToTheTransactionOfFn(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, mode := range execModes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			l := newLedger(t, withMode(mode))
			for name, test := range map[string]struct {
				options               pgx.TxOptions
				isolation, deferrable string
			}{
				"default":         {pgx.TxOptions{}, "read committed", "off"},
				"repeatable read": {pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, "repeatable read", "off"},
				"serializable":    {pgx.TxOptions{IsoLevel: pgx.Serializable, AccessMode: pgx.ReadWrite, DeferrableMode: pgx.Deferrable}, "serializable", "on"},
				"own BEGIN":       {pgx.TxOptions{BeginQuery: "start transaction isolation level repeatable read"}, "repeatable read", "off"},
				"own COMMIT":      {pgx.TxOptions{CommitQuery: "end transaction"}, "read committed", "off"},
			} {
				var isolation, deferrable string
				res, err := idemDo(ctx, l.pool, scope, name, hashA, func(tx pgx.Tx) (idem.Response, error) {
					err := tx.QueryRow(ctx, "select current_setting('transaction_isolation'), current_setting('transaction_deferrable')").Scan(&isolation, &deferrable)
					if err != nil {
						return idem.Response{}, err
					}
					return l.charge(name)(tx)
				}, idem.WithTxOptions(test.options))
				if err != nil || isolation != test.isolation || deferrable != test.deferrable {
					t.Errorf("%s: %s, deferrable %s, %v", name, isolation, deferrable, err)
				}
				l.wantOnce(name)
				again, err := idemDo(ctx, l.pool, scope, name, hashA, neverCalled(t), idem.WithTxOptions(test.options))
				res.Replayed = true
				if diff := cmp.Diff(res, again); err != nil || diff != "" {
					t.Errorf("%s: replay: %v\n%s", name, err, diff)
				}
			}
		})
	}
}

// Some read-only transactions are not recognized in advance. Postgres then refuses the write, and
// the error has a hint.
func TestTransactionThatTurnsOutReadOnlySaysSo(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	for name, call := range map[string]func() error{
		"begun so": func() error {
			return errOf(idemDo(ctx, l.pool, scope, "k", hashA, neverCalled(t), idem.WithTxOptions(pgx.TxOptions{BeginQuery: "begin read only"})))
		},
		"by fn": func() error {
			return errOf(idemDo(ctx, l.pool, scope, "k", hashA, func(tx pgx.Tx) (idem.Response, error) {
				_, err := tx.Exec(ctx, "set transaction read only")
				return ok, err
			}))
		},
	} {
		if err := call(); err == nil || !strings.Contains(err.Error(), "read-only") || !strings.Contains(err.Error(), "25006") {
			t.Errorf("%s: err = %v", name, err)
		}
	}
	l.wantNone("k")
	l.wantFree("k")
}

// The wait ends neither earlier, nor before a call that may wait longer.
func TestDefaultWaitIsFiveSeconds(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	l := newLedger(t)
	held := l.hold(t, "k", hashA, nil)
	begun := time.Now()
	first := make(chan error, 2)
	for _, options := range [][]idem.Option{nil, {idem.WithWait(limit)}} {
		go func() { first <- errOf(idemDo(ctx, l.pool, scope, "k", hashA, neverCalled(t), options...)) }()
	}
	err := <-first
	took := time.Since(begun)
	var busy *idem.InProgressError
	isBusy := errors.As(err, &busy)
	if !isBusy || took < 5*time.Second || busy.RetryAfter != 5*time.Second {
		t.Errorf("after %v: %v", took, err)
	}
	cancel()
	<-first
	held.release()
	if err := held.wait(t); err != nil {
		t.Error(err)
	}
}

func TestOptionsCanBeKeptAndShared(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	opts := []idem.Option{idem.WithTTL(time.Hour), idem.WithWait(limit), idem.WithRetries(9), idem.WithMaxResponse(100),
		idem.WithObserver(newWatch()), idem.WithTxOptions(pgx.TxOptions{IsoLevel: pgx.RepeatableRead})}
	var calls sync.WaitGroup
	for i := range 16 {
		key := string(rune('a' + i%4))
		calls.Go(func() {
			if res, err := idemDo(ctx, l.pool, scope, key, hashA, l.charge(key), opts...); err != nil || res.ExpiresAt.Sub(res.CompletedAt) > 2*time.Hour {
				t.Errorf("%+v, %v", res, err)
			}
		})
	}
	calls.Wait()
	for i := range 4 {
		l.wantOnce(string(rune('a' + i)))
	}
}
