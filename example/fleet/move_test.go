package fleet_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/example/fleet"
	"github.com/idem-go/idem/example/fleet/scene"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/lab/waiting"
)

const (
	tenant = scene.Mover
	scope  = tenant + "/test"
)

// world has two clusters. west is the home of the tenant.
type world struct {
	t          *testing.T
	west, east fleet.Cluster
}

// newWorld creates the clusters. In the clusters named parted, the tables of idem have partitions.
func newWorld(t *testing.T, parted ...string) *world {
	t.Helper()
	w := newClusters(t, parted...)
	for _, c := range []fleet.Cluster{w.west, w.east} {
		if err := scene.Install(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	if err := fleet.Place(t.Context(), w.west, tenant); err != nil {
		t.Fatal(err)
	}
	return w
}

func newClusters(t *testing.T, parted ...string) *world {
	t.Helper()
	open := func(name string) fleet.Cluster {
		c := fleet.Cluster{Name: name, Pool: pgtest.Open(t, pgtest.DSN(t), func(c *pgxpool.Config) { c.MaxConns = 12 })}
		if slices.Contains(parted, name) {
			exec(t, c, partitions)
		}
		return c
	}
	return &world{t: t, west: open("west"), east: open("east")}
}

// partitions is the SQL that divides the tables like the command idem partition.
const partitions = `
	ALTER TABLE idem.records RENAME TO records_whole;
	ALTER TABLE idem.inbox RENAME TO inbox_whole;
	CREATE TABLE idem.records (LIKE idem.records_whole INCLUDING ALL EXCLUDING INDEXES, PRIMARY KEY (scope, key)) PARTITION BY HASH (scope, key);
	CREATE TABLE idem.inbox (LIKE idem.inbox_whole INCLUDING ALL EXCLUDING INDEXES, PRIMARY KEY (consumer, source, id)) PARTITION BY HASH (consumer, source, id);
	DROP TABLE idem.records_whole, idem.inbox_whole;
	DO $$ BEGIN
		FOR part IN 0 .. 3 LOOP
			EXECUTE format('CREATE TABLE idem.records_%s PARTITION OF idem.records FOR VALUES WITH (MODULUS 4, REMAINDER %s)', part, part);
			EXECUTE format('CREATE TABLE idem.inbox_%s PARTITION OF idem.inbox FOR VALUES WITH (MODULUS 4, REMAINDER %s)', part, part);
		END LOOP;
	END $$`

// config returns the configuration of a move with a pause that a busy machine does not exceed.
func config(progress func(fleet.Stage)) fleet.MoveConfig {
	return fleet.MoveConfig{Tables: scene.Tables, Patience: 50 * time.Millisecond, MaxPause: time.Minute, Progress: func(s fleet.Stage, _ int64) {
		if progress != nil {
			progress(s)
		}
	}}
}

// move moves the tenant from west to east.
func (w *world) move(progress func(fleet.Stage)) fleet.Report {
	w.t.Helper()
	report, err := fleet.Move(waiting.Within(w.t), w.west, w.east, tenant, config(progress))
	if err != nil {
		w.t.Error(err)
	}
	return report
}

func exec(t *testing.T, c fleet.Cluster, statements string) {
	t.Helper()
	if _, err := c.Pool.Exec(t.Context(), statements, pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Error(err)
	}
}

func number(t *testing.T, c fleet.Cluster, query string) (n int) {
	t.Helper()
	if err := c.Pool.QueryRow(t.Context(), query).Scan(&n); err != nil {
		t.Errorf("%s: %v", query, err)
	}
	return n
}

func hash(s string) idem.Hash { return idem.HashBytes([]byte(s)) }

func insert(ctx context.Context) func(tx pgx.Tx) (idem.Response, error) {
	return func(tx pgx.Tx) (idem.Response, error) {
		id, _ := idem.ExecutionID(tx)
		_, err := tx.Exec(ctx, "insert into orders (tenant, id, customer, number, request, cents) values ($1, $2, 'c', 1, 'r', 1)", tenant, id)
		return idem.Response{Status: 201, Body: []byte(id)}, err
	}
}

// do makes a call in a cluster.
func do(t *testing.T, c fleet.Cluster, key string, options ...idem.Option) (idem.Result, error) {
	return idem.Do(t.Context(), c.Pool, scope, key, hash(key), insert(t.Context()), options...)
}

// The scene compares the answers of the clients with the orders and bills, and repeats each
// request.
func TestMove_UnderLoadThereAndBackLosesAndDoublesNothing(t *testing.T) {
	t.Parallel()
	const keys = 200
	w := newClusters(t, "west")
	s, err := scene.Open(t.Context(), w.west, w.east, keys)
	if err != nil {
		t.Fatal(err)
	}
	books, err := s.Perform(waiting.Within(t), func(ctx context.Context, c *scene.Crowd) error {
		for range 2 {
			if _, err := s.Move(ctx, config(nil)); err != nil {
				return err
			}
			if err := c.Answered(ctx, 10); err != nil {
				return err
			}
		}
		return nil
	})
	if err := errors.Join(err, s.Close()); err != nil {
		t.Errorf("%v: %+v", err, books)
	}
	const filled = `select count(*) from idem.records r join orders o on o.id = r.execution_id join idem.inbox i on i.id = o.id::text where r.key like 'filled-%'`
	if n := number(t, w.west, filled); n != keys {
		t.Errorf("%d keys are back with their orders and messages, want %d", n, keys)
	}
	if n := number(t, w.west, "select count(*) from idem.steps s join idem.operations o on o.id = operation_id where o.name = 'filled'"); n != keys/10*2 {
		t.Errorf("%d steps are back, want %d", n, keys/10*2)
	}
	if n := number(t, w.west, "select count(distinct tableoid) from idem.records"); n != 4 {
		t.Errorf("the records are in %d partitions, want 4", n)
	}
}

// Exactly one cluster is the home, at whatever stage the mover dies. Between the two commits there
// is none.
func TestMove_KilledAtAnyStageLeavesOneHomeAndContinues(t *testing.T) {
	t.Parallel()
	for stage, homes := range map[fleet.Stage][2]int{ // of west and east
		fleet.Copied: {1, 0}, fleet.Fenced: {1, 0}, fleet.Checked: {1, 0}, fleet.Left: {0, 0}, fleet.Arrived: {0, 1}, fleet.Cleaned: {0, 1},
	} {
		t.Run(string(stage), func(t *testing.T) { // not parallel: each crowd of clients loads a processor
			w := newClusters(t)
			s, err := scene.Open(t.Context(), w.west, w.east, 20)
			if err != nil {
				t.Fatal(err)
			}
			killed := false
			books, err := s.Perform(waiting.Within(t), func(ctx context.Context, c *scene.Crowd) error {
				_, err := fleet.Move(ctx, w.west, w.east, tenant, config(func(s fleet.Stage) {
					if s == stage && !killed {
						killed = true
						w.killMover()
					}
				}))
				if err == nil && stage != fleet.Cleaned {
					t.Error("Move succeeded without its connections")
				}
				const home = "select count(*) from fleet.tenants where state = 'home' and tenant = '" + tenant + "'"
				if got := [2]int{number(t, w.west, home), number(t, w.east, home)}; got != homes {
					t.Errorf("west and east are the home %v times, want %v", got, homes)
				}
				if stage != fleet.Left { // callers continue without a mover
					if err := c.Answered(ctx, 5); err != nil {
						return err
					}
				}
				w.move(nil)
				return nil
			})
			if err := errors.Join(err, s.Close()); err != nil || !killed {
				t.Errorf("%v: %+v", err, books)
			}
		})
	}
}

// killMover ends the sessions of the mover, as if its process was killed. It returns when they have
// ended.
func (w *world) killMover() {
	const mover = "from pg_stat_activity where datname = current_database() and application_name = 'fleet mover'"
	for _, c := range []fleet.Cluster{w.west, w.east} {
		exec(w.t, c, "select pg_terminate_backend(pid) "+mover)
		waiting.Until(w.t, "the sessions of the mover have ended", func() bool { return number(w.t, c, "select count(*) "+mover) == 0 })
	}
}

func TestMove_RefusesInvalidMoves(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	if _, err := fleet.Move(ctx, w.east, w.west, tenant, fleet.MoveConfig{}); !errors.Is(err, fleet.ErrNotHere) {
		t.Errorf("from a cluster that is not the home: %v", err)
	}
	if _, err := fleet.Move(ctx, w.west, w.east, "a/b", fleet.MoveConfig{}); !errors.Is(err, fleet.ErrInvalidTenant) {
		t.Errorf("a tenant with a slash in its name: %v", err)
	}
	if err := fleet.Place(ctx, w.west, tenant); !errors.Is(err, fleet.ErrPlaced) {
		t.Errorf("placed twice: %v", err)
	}
	w.move(func(s fleet.Stage) {
		if s == fleet.Copied {
			if _, err := fleet.Move(ctx, w.west, w.east, tenant, fleet.MoveConfig{}); !errors.Is(err, fleet.ErrMoving) {
				t.Errorf("a second simultaneous move: %v", err)
			}
		}
	})
	w.move(nil) // a repeated move does nothing
}

// A trigger of the new home changes the copied rows.
func TestMove_RefusesACopyThatDiffers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	exec(t, w.east, `CREATE FUNCTION free() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.cents := 0; RETURN NEW; END $$;
		CREATE TRIGGER free BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION free()`)
	first, err := do(t, w.west, "k")
	if err != nil {
		t.Fatal(err)
	}
	_, err = fleet.Move(t.Context(), w.west, w.east, tenant, config(nil))
	if differs, ok := errors.AsType[*fleet.DifferenceError](err); !ok || differs.Table != `"public"."orders"` {
		t.Errorf("the move ended with %v", err)
	}
	if again, err := do(t, w.west, "k"); err != nil || string(again.Body) != string(first.Body) {
		t.Errorf("the old home returned %v, %v", again, err)
	}
}

// A long transaction delays the move and not the callers.
func TestMove_LongTransactionDelaysNoCaller(t *testing.T) {
	t.Parallel()
	for when, begins := range map[string]fleet.Stage{"begun before the notes": "", "begun after the comparison": fleet.Compared} {
		t.Run(when, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			var long pgx.Tx
			begin := func() {
				var err error
				if long, err = w.west.Pool.Begin(t.Context()); err == nil {
					_, err = idem.DoTx(t.Context(), long, scope, "long", hash("long"), insert(t.Context()))
				}
				if err != nil {
					t.Error(err)
				}
			}
			if begins == "" {
				begin()
			}
			ended := false
			w.move(func(s fleet.Stage) {
				if s == begins {
					begin()
				}
				if s == fleet.Waiting && !ended {
					ended = true
					if _, err := do(t, w.west, "quick"); err != nil {
						t.Errorf("a caller during the wait: %v", err)
					}
					if err := long.Commit(t.Context()); err != nil {
						t.Error(err)
					}
				}
			})
			for _, key := range []string{"long", "quick"} {
				if again, err := do(t, w.east, key); err != nil || !again.Replayed {
					t.Errorf("%s: the new home returned %v, %v", key, again, err)
				}
			}
		})
	}
}

// Every attempt exceeds MaxPause and is given up. Callers are served between two attempts.
func TestMove_GivesUpAnAttemptWithATooLongPause(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var waited, left int
	_, err := fleet.Move(ctx, w.west, w.east, tenant, fleet.MoveConfig{MaxPause: 1, Tables: scene.Tables, Progress: func(s fleet.Stage, _ int64) {
		switch s {
		case fleet.Left:
			left++
		case fleet.Waiting:
			if _, err := do(t, w.west, strconv.Itoa(waited)); err != nil {
				t.Errorf("a caller after try %d: %v", waited, err)
			}
			if waited++; waited == 2 {
				stop()
			}
		}
	}})
	if !errors.Is(err, context.Canceled) || waited != 2 || left != 0 {
		t.Errorf("%d attempts were given up, %d left: %v", waited, left, err)
	}
	w.move(nil)
	if n := number(t, w.east, "select count(*) from orders"); n != 2 {
		t.Errorf("%d orders have arrived, want 2", n)
	}
}
