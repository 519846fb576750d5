package outbox_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/lab/schema"
	"github.com/idem-go/idem/outbox"
)

// work is a transaction of a session, or a prepared one: the keys whose rows it has locked, and the
// messages that it has added.
type work struct {
	tx       pgx.Tx // nil if there is none
	keys     []string
	messages []outbox.Message
}

// steps are random steps of transactions while a relay runs. No step waits for another.
type steps struct {
	*database
	random    *rand.Rand
	broker    *keeper
	prepared  map[string]work
	taken     map[string]bool
	committed map[string][]string // by key, in the order of commits
	all       []string            // in the order of commits
	until     []int               // how many messages were committed before each marker
	number    int
}

func (s *steps) on(w *work, sql string, args ...any) {
	s.t.Helper()
	if _, err := w.tx.Exec(s.t.Context(), sql, args...); err != nil {
		s.t.Fatalf("%s: %v", sql, err)
	}
}

func (s *steps) message(key string) outbox.Message {
	s.number++
	return message(key, fmt.Sprint(s.number))
}

// step makes a step of a transaction.
func (s *steps) step(w *work) {
	s.t.Helper()
	switch n := s.random.IntN(94); {
	case w.tx == nil:
		*w = work{tx: s.begin()}
		if s.random.IntN(2) == 0 {
			s.on(w, `select pg_current_xact_id()`)
		}
	case n < 25: // lock the row of a key if it is free
		if key := fmt.Sprint("key ", s.random.IntN(8)); !s.taken[key] {
			s.on(w, `insert into account (id) values ($1) on conflict (id) do update set changes = account.changes + 1`, key)
			s.taken[key], w.keys = true, append(w.keys, key)
		}
	case n < 55 && len(w.keys) > 0:
		m := s.message(w.keys[s.random.IntN(len(w.keys))])
		s.in(w.tx, m)
		w.messages = append(w.messages, m)
	case n < 65: // roll back to a savepoint
		s.on(w, `savepoint s`)
		s.in(w.tx, s.message("never"))
		s.on(w, `rollback to savepoint s`)
	case n < 72 && len(s.prepared) < 10:
		s.number++
		name := fmt.Sprint("prepared ", s.number)
		s.on(w, `prepare transaction '`+name+`'`)
		s.prepared[name] = *w
		_ = w.tx.Rollback(s.t.Context()) // returns the connection
		w.tx = nil
	case n > 75:
		s.finish(w, n < 90)
	}
}

// finish ends a transaction.
func (s *steps) finish(w *work, commits bool) {
	s.t.Helper()
	if commits {
		s.commit(w.tx)
	} else if err := w.tx.Rollback(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	w.tx = nil
	s.ended(*w, commits)
}

// finishPrepared ends a random prepared transaction.
func (s *steps) finishPrepared(commits bool) {
	s.t.Helper()
	names := slices.Sorted(maps.Keys(s.prepared))
	name := names[s.random.IntN(len(names))]
	how := map[bool]string{true: `commit`, false: `rollback`}[commits]
	s.exec(how + ` prepared '` + name + `'`)
	w := s.prepared[name]
	delete(s.prepared, name)
	s.ended(w, commits)
}

// ended notes the messages of a transaction, and adds a marker after it.
func (s *steps) ended(w work, commits bool) {
	s.t.Helper()
	for _, key := range w.keys {
		delete(s.taken, key)
	}
	if !commits {
		return
	}
	for _, m := range w.messages {
		s.committed[m.Key], s.all = append(s.committed[m.Key], m.Type), append(s.all, m.Type)
	}
	s.add(message("marker", fmt.Sprint("marker ", len(s.until))))
	s.until = append(s.until, len(s.all))
}

// check checks the order of each key, that no message is lost or published twice, and that messages
// committed before a marker was added were published before the marker.
func (s *steps) check() {
	s.t.Helper()
	for key, want := range s.committed {
		s.broker.wantTypes(s.t, want, key)
	}
	markers, left := 0, map[string]bool{}
	for _, m := range s.broker.all() {
		if m.Key != "marker" {
			left[m.Type] = true
			continue
		}
		for _, before := range s.all[:s.until[markers]] {
			if !left[before] {
				s.t.Errorf("%s left before %s, which was committed before it was added", m.Type, before)
			}
		}
		markers++
	}
	if diff := cmp.Diff([]int{len(s.until), len(s.all)}, []int{markers, len(left)}); diff != "" {
		s.t.Errorf("markers and messages (-committed +left):\n%s", diff)
	}
}

// Random transactions run against a real server, with its locks, positions and snapshots.
func TestRelay_FollowsTheOrderOfCommits(t *testing.T) {
	t.Parallel()
	pgtest.Long(t)
	for seed := range uint64(3) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.Server(t, "max_prepared_transactions=20").DSN()
			if err := schema.UpAt(t.Context(), dsn); err != nil {
				t.Fatal(err)
			}
			s := &steps{
				database: &database{t: t, dsn: dsn, pool: pgtest.Open(t, dsn+"&pool_max_conns=20")}, random: rand.New(rand.NewPCG(seed, 2)),
				broker: &keeper{}, prepared: map[string]work{}, taken: map[string]bool{}, committed: map[string][]string{},
			}
			s.exec(`create table account (id text primary key, changes int not null default 0)`)
			old := s.begin()
			s.on(&work{tx: old}, `select pg_current_xact_id()`)
			config := swift()
			config.Poll = 5 * time.Millisecond
			s.relay(s.broker, config)
			open := make([]work, 6)
			for range 400 {
				switch n := s.random.IntN(100); {
				case n < 6:
					eventually(t, "the markers to leave", func() bool { return len(s.broker.types("marker")) == len(s.until) })
				case n < 12 && len(s.prepared) > 0:
					s.finishPrepared(s.random.IntN(3) > 0)
				default:
					s.step(&open[s.random.IntN(len(open))])
				}
			}
			for len(s.prepared) > 0 {
				s.finishPrepared(true)
			}
			for i := range open {
				if open[i].tx != nil {
					s.finish(&open[i], true)
				}
			}
			s.empty()
			s.check()
		})
	}
}
