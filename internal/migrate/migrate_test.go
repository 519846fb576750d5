package migrate_test

import (
	"database/sql"
	"io/fs"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/idem-go/idem/internal/migrate"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/migrations"
)

func TestUp_ConcurrentCallsApplyEachMigrationOnce(t *testing.T) {
	t.Parallel()
	dsn := pgtest.EmptyDSN(t)
	var mu sync.Mutex
	var got []string
	atOnce(t, dsn, 8, func(db *sql.DB) error {
		applied, err := migrate.Up(t.Context(), db, migrations.FS)
		mu.Lock()
		defer mu.Unlock()
		got = append(got, names(applied)...)
		return err
	})
	sorted := cmpopts.SortSlices(func(a, b string) bool { return a < b })
	if diff := cmp.Diff(files(t), got, sorted); diff != "" {
		t.Errorf("applied by all together (-want +got):\n%s", diff)
	}
}

func TestUpAndDown_ExcludeEachOther(t *testing.T) {
	t.Parallel()
	dsn := pgtest.EmptyDSN(t)
	atOnce(t, dsn, 4, func(db *sql.DB) error {
		for range 3 {
			if _, err := migrate.Up(t.Context(), db, migrations.FS); err != nil {
				return err
			}
			if _, err := migrate.Down(t.Context(), db, migrations.FS); err != nil {
				return err
			}
		}
		_, err := migrate.Up(t.Context(), db, migrations.FS)
		return err
	})
	db := open(t, dsn)
	if _, err := migrate.Up(t.Context(), db, migrations.FS); err != nil {
		t.Fatal(err)
	}
	for _, m := range status(t, db) {
		if m.AppliedAt.IsZero() {
			t.Errorf("%s is not applied", m.Name)
		}
	}
}

func TestDown_UndoesOneMigration(t *testing.T) {
	t.Parallel()
	db := open(t, pgtest.EmptyDSN(t))
	up, err := migrate.Up(t.Context(), db, migrations.FS)
	if err != nil {
		t.Fatal(err)
	}
	for i := len(up) - 1; i >= 0; i-- {
		undone, err := migrate.Down(t.Context(), db, migrations.FS)
		if err != nil || undone == nil || *undone != up[i] {
			t.Fatalf("%+v, %v, want %+v", undone, err, up[i])
		}
		if found := status(t, db)[i]; !found.AppliedAt.IsZero() {
			t.Errorf("%+v is still there", found)
		}
	}
	if undone, err := migrate.Down(t.Context(), db, migrations.FS); undone != nil || err != nil {
		t.Errorf("below the first: %+v, %v", undone, err)
	}
	if schemas := count(t, db, "SELECT count(*) FROM pg_namespace WHERE nspname = 'idem'"); schemas != 0 {
		t.Error("the schema is left")
	}
}

func TestStatus_ListsMigrationsWithoutWriting(t *testing.T) {
	t.Parallel()
	db := open(t, pgtest.EmptyDSN(t))
	before := status(t, db)
	if diff := cmp.Diff(files(t), names(before)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, m := range before {
		if !m.AppliedAt.IsZero() {
			t.Errorf("%+v in an empty database", m)
		}
	}
	if tables := count(t, db, "SELECT count(*) FROM pg_tables WHERE tablename LIKE 'idem%'"); tables != 0 {
		t.Errorf("it made %d tables", tables)
	}
	if _, err := migrate.Up(t.Context(), db, migrations.FS); err != nil {
		t.Fatal(err)
	}
	for _, m := range status(t, db) {
		if age := time.Since(m.AppliedAt).Abs(); age > 24*time.Hour { // whatever the time zone
			t.Errorf("%+v was applied just now", m)
		}
	}
}

func TestUpAndDown_RefuseSingleConnection(t *testing.T) {
	t.Parallel()
	db := open(t, pgtest.EmptyDSN(t))
	db.SetMaxOpenConns(1)
	if _, err := migrate.Up(t.Context(), db, migrations.FS); err == nil {
		t.Error("Up would have waited for itself")
	}
	if _, err := migrate.Down(t.Context(), db, migrations.FS); err == nil {
		t.Error("Down would have waited for itself")
	}
}

// atOnce calls act n times concurrently, each time with its own pool, like n processes.
func atOnce(t *testing.T, dsn string, n int, act func(*sql.DB) error) {
	t.Helper()
	var group sync.WaitGroup
	for range n {
		db := open(t, dsn)
		group.Go(func() {
			if err := act(db); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
}

func open(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db, err := migrate.Open(dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func status(t *testing.T, db *sql.DB) []migrate.Migration {
	t.Helper()
	found, err := migrate.Status(t.Context(), db, migrations.FS)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func count(t *testing.T, db *sql.DB, query string) (n int) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func names(all []migrate.Migration) []string {
	var names []string
	for _, m := range all {
		names = append(names, m.Name)
	}
	return names
}

// files returns the names of all migrations.
func files(t *testing.T) []string {
	t.Helper()
	found, err := fs.Glob(migrations.FS, "*.sql")
	if err != nil {
		t.Fatal(err)
	}
	return found
}
