package outbox_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/lab/schema"
	"github.com/idem-go/idem/outbox"
)

var longest = flag.Duration("outbox.pause", 60*time.Millisecond, "the longest pause between two steps of a transaction")

// session is a connection, possibly with a transaction. The test runs the steps of all sessions,
// and none waits for another.
type session struct {
	conn *pgx.Conn
	tx   pgx.Tx
	work work
}

// work is what a transaction has done.
type work struct {
	keys     []string // whose rows it has locked
	messages []outbox.Message
}

// steps runs random steps of sessions while a relay runs.
type steps struct {
	*database
	random    *rand.Rand
	broker    *keeper
	sessions  []*session
	prepared  map[string]work
	taken     map[string]bool
	committed map[string][]string // by key, in the order of commits
	until     []int               // how many messages were committed before each marker
	all       []string            // in the order of commits
	number    int
}

// newSteps starts a server with max_prepared_transactions.
func newSteps(t *testing.T, seed uint64) *steps {
	t.Helper()
	o := &database{t: t, dsn: pgtest.Server(t, "max_prepared_transactions=20").DSN()}
	if err := schema.UpAt(t.Context(), o.dsn); err != nil {
		t.Fatal(err)
	}
	o.pool = pgtest.Open(t, o.dsn)
	o.exec(`create table account (id text primary key, changes int not null default 0)`)
	o.exec(`create table elsewhere (n int)`)
	s := &steps{database: o, random: rand.New(rand.NewPCG(seed, 2)), broker: &keeper{}, prepared: map[string]work{}, taken: map[string]bool{}, committed: map[string][]string{}}
	for range 6 {
		s.sessions = append(s.sessions, &session{conn: s.connect()})
	}
	return s
}

func (s *steps) connect() *pgx.Conn {
	s.t.Helper()
	conn, err := pgx.Connect(s.t.Context(), s.dsn)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { conn.Close(s.t.Context()) })
	return conn
}

func (s *steps) on(conn *pgx.Conn, sql string, args ...any) {
	s.t.Helper()
	if _, err := conn.Exec(s.t.Context(), sql, args...); err != nil {
		s.t.Fatalf("%s: %v", sql, err)
	}
}

func (s *steps) begin(at *session) {
	s.t.Helper()
	tx, err := at.conn.Begin(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	at.tx, at.work = tx, work{}
	if s.random.IntN(2) == 0 {
		s.on(at.conn, `insert into elsewhere values (1)`)
	}
}

// lock locks the row of a random key if it is free.
func (s *steps) lock(at *session) {
	s.t.Helper()
	if key := fmt.Sprint("key ", s.random.IntN(8)); !s.taken[key] {
		s.on(at.conn, `insert into account (id) values ($1) on conflict (id) do update set changes = account.changes + 1`, key)
		s.taken[key], at.work.keys = true, append(at.work.keys, key)
	}
}

func (s *steps) message(key string) outbox.Message {
	s.number++
	return message(key, fmt.Sprint(s.number))
}

func (s *steps) add(at *session) {
	s.t.Helper()
	if len(at.work.keys) > 0 {
		m := s.message(at.work.keys[s.random.IntN(len(at.work.keys))])
		s.in(at.tx, m)
		at.work.messages = append(at.work.messages, m)
	}
}

// undo adds messages and rolls back to a savepoint.
func (s *steps) undo(at *session) {
	s.t.Helper()
	s.on(at.conn, `savepoint s`)
	s.in(at.tx, s.message("never"))
	s.on(at.conn, `rollback to savepoint s`)
}

func (s *steps) prepare(at *session) {
	s.t.Helper()
	s.number++
	name := fmt.Sprintf("prepared %d", s.number)
	s.on(at.conn, `prepare transaction '`+name+`'`)
	s.prepared[name], at.tx = at.work, nil
}

func (s *steps) finish(at *session, commits bool) {
	s.t.Helper()
	how := map[bool]string{true: `commit`, false: `rollback`}[commits]
	s.on(at.conn, how)
	at.tx = nil
	s.end(at.work, commits)
}

func (s *steps) finishPrepared(commits bool) {
	s.t.Helper()
	names := make([]string, 0, len(s.prepared))
	for name := range s.prepared {
		names = append(names, name)
	}
	slices.Sort(names)
	name := names[s.random.IntN(len(names))]
	how := map[bool]string{true: `commit`, false: `rollback`}[commits]
	s.exec(how + ` prepared '` + name + `'`)
	done := s.prepared[name]
	delete(s.prepared, name)
	s.end(done, commits)
}

// end stores the work of a transaction, and adds a marker after it.
func (s *steps) end(done work, commits bool) {
	s.t.Helper()
	for _, key := range done.keys {
		delete(s.taken, key)
	}
	if !commits {
		return
	}
	for _, m := range done.messages {
		s.committed[m.Key] = append(s.committed[m.Key], m.Type)
		s.all = append(s.all, m.Type)
	}
	s.mark()
}

func (s *steps) mark() {
	s.t.Helper()
	s.database.add(message("marker", fmt.Sprint("marker ", len(s.until))))
	s.until = append(s.until, len(s.all))
}

// pause waits for a few reads of the relay.
func (s *steps) pause() {
	s.t.Helper()
	for range 3 {
		s.mark()
		eventually(s.t, "the marker to leave", func() bool { return len(s.broker.types("marker")) == len(s.until) })
	}
}

func (s *steps) step() {
	s.t.Helper()
	at, n := s.sessions[s.random.IntN(len(s.sessions))], s.random.IntN(100)
	switch {
	case n < 6:
		s.pause()
	case n < 12 && len(s.prepared) > 0:
		s.finishPrepared(s.random.IntN(3) > 0)
	case at.tx == nil:
		s.begin(at)
	case n < 35:
		s.lock(at)
	case n < 65:
		s.add(at)
	case n < 75:
		s.undo(at)
	case n < 82 && len(s.prepared) < 10:
		s.prepare(at)
	default:
		s.finish(at, n < 95)
	}
}

// check checks the order of each key, that no message is lost or published twice, and that messages
// committed before the begin of a marker were published before the marker.
func (s *steps) check() {
	s.t.Helper()
	for key, want := range s.committed {
		if diff := cmp.Diff(want, s.broker.types(key)); diff != "" {
			s.t.Errorf("%s (-committed +left):\n%s", key, diff)
		}
	}
	markers, left := 0, map[string]bool{}
	for _, m := range s.broker.all() {
		if m.Key != "marker" {
			left[m.Type] = true
			continue
		}
		for _, before := range s.all[:s.until[markers]] {
			if !left[before] {
				s.t.Errorf("%s left before %s, which was committed before it was begun", m.Type, before)
			}
		}
		markers++
	}
	if markers != len(s.until) || len(left) != len(s.all) {
		s.t.Errorf("%d markers of %d, %d messages of %d", markers, len(s.until), len(left), len(s.all))
	}
}

// Random transactions run against a real server, with its locks, positions and snapshots.
func TestRelay_FollowsTheOrderOfCommits(t *testing.T) {
	t.Parallel()
	pgtest.Long(t)
	for seed := range uint64(3) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			s := newSteps(t, seed)
			idle := s.connect()
			s.on(idle, `begin; select pg_current_xact_id()`)
			config := swift()
			config.Poll = 5 * time.Millisecond
			s.relay(s.broker, config)
			for range 400 {
				s.step()
			}
			for len(s.prepared) > 0 {
				s.finishPrepared(true)
			}
			for _, at := range s.sessions {
				if at.tx != nil {
					s.pause()
					s.finish(at, true)
				}
			}
			s.empty()
			s.check()
		})
	}
}

// Four workers change twenty keys. Each transaction locks the row of its key, and pauses between
// its steps.
func TestRelay_KeepsOrderOfSlowTransactions(t *testing.T) {
	t.Parallel()
	o := newDatabase(t)
	o.exec(`create table account (id text primary key, changes int not null default 0)`)
	for key := range 20 {
		o.exec(`insert into account (id) values ($1)`, fmt.Sprint("key ", key))
	}
	b := &broker{}
	o.relay(b, swift())
	var workers sync.WaitGroup
	for worker := range uint64(4) {
		workers.Go(func() {
			random := rand.New(rand.NewPCG(worker, 3))
			pause := func() { time.Sleep(rand.N(*longest + 1)) }
			for range 25 {
				key := fmt.Sprint("key ", random.IntN(20))
				err := pgx.BeginFunc(t.Context(), o.pool, func(tx pgx.Tx) error {
					if random.IntN(2) == 0 {
						if _, err := tx.Exec(t.Context(), `select pg_current_xact_id()`); err != nil {
							return err
						}
					}
					pause()
					var n int
					if err := tx.QueryRow(t.Context(), `update account set changes = changes + 1 where id = $1 returning changes`, key).Scan(&n); err != nil {
						return err
					}
					pause()
					if err := outbox.Add(t.Context(), tx, message(key, fmt.Sprint(n))); err != nil {
						return err
					}
					pause()
					return nil
				})
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	workers.Wait()
	o.empty()
	if b.number() != 100 {
		t.Errorf("%d messages have left, of 100", b.number())
	}
	for key := range 20 {
		for i, what := range b.types(fmt.Sprint("key ", key)) {
			if what != fmt.Sprint(i+1) {
				t.Errorf("key %d: %s is the message no. %d", key, what, i+1)
			}
		}
	}
}
