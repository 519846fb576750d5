package personality_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/personality"
	"github.com/idem-go/idem/lab/pgtest"
)

var calls = flag.Int("calls", 300, "how many calls each personality gets")

// loads are the personalities that serve calls, with the faults of their COMMITs.
var loads = []struct {
	*personality.Personality
	faults personality.Faults
	pooled bool // it shares sessions among clients, like the PgBouncer behind it here
}{
	{personality.CockroachDB, personality.Faults{Conflict: 7, Uncertain: 11, Lost: 13, Code: "40003"}, false},
	{personality.OldCockroachDB, personality.Faults{Conflict: 7, Uncertain: 11, Lost: 13, Code: "40003"}, false},
	{personality.Yugabyte, personality.Faults{Conflict: 7, Lost: 13}, false},
	{personality.Multigres, personality.Faults{Lost: 13}, true},
	{personality.PgDog, personality.Faults{Lost: 13}, true},
}

// Each key has one effect and one answer, whatever happens to the COMMITs. The test makes
// concurrent duplicates in two processes, one of them in a transaction of its own. It retries
// failed calls and makes other requests under the same key. make portability makes 100,000 calls of
// each kind.
func TestPersonality_NoKeyHasTwoEffectsOrAnswers(t *testing.T) {
	t.Parallel()
	for _, p := range loads {
		t.Run(p.Name, func(t *testing.T) {
			begun := time.Now()
			dsn := pgtest.DSN(t)
			direct, behind := pgtest.Open(t, dsn), dsn
			if p.pooled {
				behind = pgtest.PgBouncer(t, dsn)
			}
			proxy := pgtest.Personality(t, p.Personality, behind, p.faults)
			l := &load{t: t, direct: direct}
			for i := range l.pools {
				l.pools[i] = pgtest.Open(t, proxy.DSN(), func(config *pgxpool.Config) {
					config.MaxConns = 8
					if p.pooled {
						config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
					}
				})
			}
			l.run(*calls / callsPerKey)
			conflicts, uncertain, lost := proxy.Faulted()
			if proxy.Refused() > 0 {
				t.Errorf("%d statements were refused", proxy.Refused())
			}
			if p.faults.Conflict > 0 && conflicts == 0 || p.faults.Uncertain > 0 && uncertain == 0 || p.faults.Lost > 0 && lost == 0 {
				t.Error("a fault did not happen")
			}
			t.Logf("%d calls, %d of them retries, %d runs of fn, %d COMMITs rolled back, %d uncertain, %d lost, %d violations, %v",
				l.made.Load(), l.retries.Load(), l.runs.Load(), conflicts, uncertain, lost, l.violations.Load(), time.Since(begun).Round(time.Second))
		})
	}
}

// load calls Do and DoTx as two processes.
type load struct {
	t                               *testing.T
	direct                          *pgxpool.Pool
	pools                           [2]*pgxpool.Pool
	made, retries, runs, violations atomic.Int64
}

func (l *load) violated(format string, args ...any) {
	if l.violations.Add(1) <= 10 {
		l.t.Errorf(format, args...)
	}
}

const callsPerKey = 5

func (l *load) run(keys int) {
	if _, err := l.direct.Exec(context.Background(), "create table effects (key text not null)"); err != nil {
		l.t.Fatal(err)
	}
	var next atomic.Int64
	var workers sync.WaitGroup
	for range 4 {
		workers.Go(func() {
			for n := next.Add(1); n <= int64(keys); n = next.Add(1) {
				l.key(int(n))
			}
		})
	}
	workers.Wait()
	var effects, different, records int
	err := l.direct.QueryRow(context.Background(), `select (select count(*) from effects), (select count(distinct key) from effects),
		(select count(*) from idem.records where state = 'completed')`).Scan(&effects, &different, &records)
	if err != nil || effects != keys || different != keys || records != keys {
		l.violated("%d effects of %d keys, %d records, of %d keys: %v", effects, different, records, keys, err)
	}
}

var right, wrong = idem.HashBytes([]byte("right")), idem.HashBytes([]byte("wrong"))

// key makes three concurrent calls, two of them in one process. Then it makes a call with another
// request, and one that must be a replay.
func (l *load) key(n int) {
	key := fmt.Sprint("k", n)
	failing := &atomic.Bool{}
	failing.Store(n%10 == 0)
	var results [3]idem.Result
	var duplicates sync.WaitGroup
	for i := range results {
		duplicates.Go(func() { results[i] = l.call(i, key, right, failing) })
	}
	duplicates.Wait()
	for _, result := range results[1:] {
		if !bytes.Equal(result.Body, results[0].Body) || len(result.Body) == 0 {
			l.violated("%s: %q and %q", key, results[0].Body, result.Body)
		}
	}
	if again := l.call(1, key, right, failing); !again.Replayed || !bytes.Equal(again.Body, results[0].Body) {
		l.violated("%s: Replayed = %t, %q and %q", key, again.Replayed, results[0].Body, again.Body)
	}
	l.made.Add(1)
	if _, err := idem.Do(context.Background(), l.pools[n%2], "load", key, wrong, l.effect(key, failing)); !errors.Is(err, idem.ErrMismatch) {
		l.violated("%s: another request: %v", key, err)
	}
}

var errBusiness = errors.New("no money")

// effect returns a fn that fails once if failing is set.
func (l *load) effect(key string, failing *atomic.Bool) func(pgx.Tx) (idem.Response, error) {
	return func(tx pgx.Tx) (idem.Response, error) {
		l.runs.Add(1)
		if _, err := tx.Exec(context.Background(), "insert into effects values ($1)", key); err != nil {
			return idem.Response{}, err
		}
		if failing.CompareAndSwap(true, false) {
			return idem.Response{}, errBusiness
		}
		return idem.Response{Status: 201, Body: fmt.Appendf(nil, "%s by run %d", key, l.runs.Load())}, nil
	}
}

// call makes a call and repeats it as long as it may succeed later. way selects the process,
// whether the call waits, and whether it joins a transaction.
func (l *load) call(way int, key string, hash idem.Hash, failing *atomic.Bool) idem.Result {
	ctx := context.Background()
	l.made.Add(1)
	for tries := 0; ; tries++ {
		var result idem.Result
		var err error
		switch fn := l.effect(key, failing); way {
		case 0:
			result, err = idem.Do(ctx, l.pools[0], "load", key, hash, fn)
		case 1:
			result, err = idem.Do(ctx, l.pools[1], "load", key, hash, fn, idem.WithWait(0))
		default:
			err = pgx.BeginFunc(ctx, l.pools[1], func(tx pgx.Tx) (err error) {
				result, err = idem.DoTx(ctx, tx, "load", key, hash, fn)
				return err
			})
		}
		if err == nil {
			return result
		}
		if tries > 1000 || !mayPass(err, way) {
			l.violated("%s: %v", key, err)
			return result
		}
		l.retries.Add(1)
		time.Sleep(time.Duration(1+tries) * time.Millisecond) // as a client does
	}
}

// mayPass reports whether a caller repeats the call. The COMMIT of a joined call can have an error
// that Do never returns.
func mayPass(err error, way int) bool {
	pgErr, _ := errors.AsType[*pgconn.PgError](err)
	return idem.Retryable(err) || errors.Is(err, errBusiness) || way == 2 && pgErr != nil && (pgErr.Code == "40003" || pgErr.Code == "XX000")
}
