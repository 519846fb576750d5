package inbox_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/inbox"
)

func connections(n int32) func(*pgxpool.Config) {
	return func(c *pgxpool.Config) { c.MaxConns = n }
}

// Each handler waits until all handlers have begun.
func TestWithLanes_HandlesKeysConcurrently(t *testing.T) {
	t.Parallel()
	b := newFixture(t, connections(9))
	const lanes = 8
	var begun sync.WaitGroup
	begun.Add(lanes)
	all := make(chan struct{})
	go func() { begun.Wait(); close(all) }()
	var ms []inbox.Message
	for i := range lanes {
		ms = append(ms, keyed(fmt.Sprintf("%c1", 'a'+i))...)
	}
	outcomes := b.batch(ms, func(tx pgx.Tx, m inbox.Message) error {
		begun.Done()
		await(t, "all handlers to begin", all)
		return b.record(tx, m)
	}, inbox.WithLanes(lanes))
	b.wantStates(strings.Repeat("D", lanes), outcomes)
	b.wantOnce(lanes)
}

// A source redelivers unsettled messages in order, and one handler call in eight fails.
func TestWithLanes_KeepsTheOrderOfEachKey(t *testing.T) {
	t.Parallel()
	b := newFixture(t, connections(9))
	const keys, each = 9, 12
	var source []inbox.Message
	for i := range each {
		for k := range keys {
			m := message(fmt.Sprintf("%c-%03d", 'a'+k, i))
			if m.Key = m.ID[:1]; k == 0 {
				m.Key = ""
			}
			source = append(source, m)
		}
	}
	opts := []inbox.Option{inbox.WithLanes(8), inbox.WithOrder(), inbox.WithMaxAttempts(1000), inbox.WithBackoff(time.Millisecond, 2*time.Millisecond), noCircuit}
	for open := source; len(open) > 0; {
		window := open[:min(len(open), 64)]
		outcomes := b.batch(window, func(tx pgx.Tx, m inbox.Message) error {
			if err := b.record(tx, m); err != nil || rand.IntN(8) > 0 {
				return err
			}
			return errPoison
		}, opts...)
		var left []inbox.Message
		for i, o := range outcomes {
			if o.State == inbox.Retry {
				left = append(left, window[i])
			}
		}
		open = append(left, open[len(window):]...)
	}
	b.wantOnce(keys * each)
	rows, _ := b.pool.Query(t.Context(), `select id from books where id not like 'a-%' order by left(id, 1), n`)
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || !slices.IsSorted(got) {
		t.Errorf("%v, %v", got, err)
	}
}

// Messages with one ID are in one lane even if their keys differ: one of them is a duplicate or a
// mismatch.
func TestWithLanes_KeepsAnIDInOneLane(t *testing.T) {
	t.Parallel()
	b := newFixture(t, connections(9))
	first, other, twin := message("x"), message("x"), message("x")
	first.Key, other.Key, twin.Key = "a", "b", "c"
	other.Payload = []byte("another one")
	outcomes := b.batch([]inbox.Message{first, message("y"), other, twin}, b.record, inbox.WithLanes(4))
	b.wantStates("DDXd", outcomes)
	b.wantOnce(2)
}

func TestWithLanes_LeavesAConnection(t *testing.T) {
	t.Parallel()
	for _, conns := range []int32{1, 3} {
		b := newFixture(t, connections(conns))
		var now, most atomic.Int64
		ms := messages("m", 40)
		outcomes := b.batch(ms, func(tx pgx.Tx, m inbox.Message) error {
			n := now.Add(1)
			defer now.Add(-1)
			for seen := most.Load(); n > seen && !most.CompareAndSwap(seen, n); seen = most.Load() {
			}
			return b.record(tx, m)
		}, inbox.WithLanes(8))
		b.wantStates(strings.Repeat("D", 40), outcomes)
		if n := most.Load(); n > max(int64(conns)-1, 1) {
			t.Errorf("%d handlers at once on %d connections", n, conns)
		}
	}
}

func TestWithLanes_PropagatesAPanic(t *testing.T) {
	t.Parallel()
	b := newFixture(t, connections(9))
	panicked := func() (value any) {
		defer func() { value = recover() }()
		b.batch(keyed("a1", "b1"), b.failing("a1"), inbox.WithLanes(2), inbox.WithMaxAttempts(1), inbox.WithSealer(panicking{}))
		return nil
	}()
	if panicked != "the key is gone" {
		t.Errorf("%v", panicked)
	}
	b.wantEffects("b1")
}

type panicking struct{}

func (panicking) Seal([]byte, []byte) (string, []byte, error) { panic("the key is gone") }
func (panicking) Open(string, []byte, []byte) ([]byte, error) { panic("the key is gone") }
