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

// world is two clusters, and the tenant at home in west.
type world struct {
	t          *testing.T
	west, east fleet.Cluster
}

// newWorld makes the clusters. The tables of those that are named have partitions.
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

// partitions divide the tables that idem partition divides.
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

// The books of the scene hold the answers of the clients to the orders and bills, and repeat each request.
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
		t.Errorf("%d keys are back with their orders and messages, of %d", n, keys)
	}
	if n := number(t, w.west, "select count(*) from idem.steps s join idem.operations o on o.id = operation_id where o.name = 'filled'"); n != keys/10*2 {
		t.Errorf("%d steps are back, of %d", n, keys/10*2)
	}
	if n := number(t, w.west, "select count(distinct tableoid) from idem.records"); n != 4 {
		t.Errorf("the records are in %d partitions of 4", n)
	}
}

// Whatever a mover was at when it died, one cluster is the home, except between the two commits, where none is.
func TestMove_KilledAtAnyStageLeavesOneHomeAndContinues(t *testing.T) {
	t.Parallel()
	for stage, homes := range map[fleet.Stage][2]int{ // of west and east
		fleet.Copied: {1, 0}, fleet.Fenced: {1, 0}, fleet.Checked: {1, 0}, fleet.Left: {0, 0}, fleet.Arrived: {0, 1}, fleet.Cleaned: {0, 1},
	} {
		t.Run(string(stage), func(t *testing.T) {
			t.Parallel()
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
					t.Error("the move continues without its connections")
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

// killMover ends the sessions of the mover, and returns when the servers have noticed, as they do when its process is killed.
func (w *world) killMover() {
	const mover = "from pg_stat_activity where datname = current_database() and application_name = 'fleet mover'"
	for _, c := range []fleet.Cluster{w.west, w.east} {
		exec(w.t, c, "select pg_terminate_backend(pid) "+mover)
		waiting.Until(w.t, "the sessions of the mover have ended", func() bool { return number(w.t, c, "select count(*) "+mover) == 0 })
	}
}

func TestMove_ThatMakesNoSenseIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	if _, err := fleet.Move(ctx, w.east, w.west, tenant, fleet.MoveConfig{}); !errors.Is(err, fleet.ErrNotHere) {
		t.Errorf("from where it is not: %v", err)
	}
	if _, err := fleet.Move(ctx, w.west, w.east, "a/b", fleet.MoveConfig{}); !errors.Is(err, fleet.ErrInvalidTenant) {
		t.Errorf("a tenant whose name does not begin names: %v", err)
	}
	if err := fleet.Place(ctx, w.west, tenant); !errors.Is(err, fleet.ErrPlaced) {
		t.Errorf("placed twice: %v", err)
	}
	w.move(func(s fleet.Stage) {
		if s == fleet.Copied {
			if _, err := fleet.Move(ctx, w.west, w.east, tenant, fleet.MoveConfig{}); !errors.Is(err, fleet.ErrMoving) {
				t.Errorf("moved twice at a time: %v", err)
			}
		}
	})
	w.move(nil) // again: there is nothing left to do
}

// The new home has a trigger that changes rows.
func TestMove_CopyThatDiffersIsNotMoved(t *testing.T) {
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
		t.Errorf("the old home says %v, %v", again, err)
	}
}

// A transaction that takes long delays the move, and not the callers.
func TestMove_CallersContinueWhileItWaitsForALongTransaction(t *testing.T) {
	t.Parallel()
	for when, begins := range map[string]fleet.Stage{"that notes nothing": "", "that notes its changes": fleet.Compared} {
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
						t.Errorf("a caller beside it: %v", err)
					}
					if err := long.Commit(t.Context()); err != nil {
						t.Error(err)
					}
				}
			})
			for _, key := range []string{"long", "quick"} {
				if again, err := do(t, w.east, key); err != nil || !again.Replayed {
					t.Errorf("%s: the new home says %v, %v", key, again, err)
				}
			}
		})
	}
}

// What comes behind the fence takes too long each time, so that nothing is decided, and callers have their turn in between.
func TestMove_WhosePauseWouldBeTooLongGoesBackEachTime(t *testing.T) {
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
		t.Errorf("%d tries, and it has left %d times: %v", waited, left, err)
	}
	w.move(nil)
	if n := number(t, w.east, "select count(*) from orders"); n != 2 {
		t.Errorf("%d orders have arrived", n)
	}
}
