package command_test

import (
	"encoding/json"
	"io/fs"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem/internal/pgtest"
	"github.com/idem-go/idem/migrations"
)

// files are the migrations that there are.
func files(t *testing.T) []string {
	t.Helper()
	found, err := fs.Glob(migrations.FS, "*.sql")
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// wantMigrations reads what was said in JSON.
func (s said) wantMigrations(t *testing.T, names []string, applied bool) {
	t.Helper()
	var found []struct {
		Version   int64
		Name      string
		AppliedAt *string `json:"applied_at"`
	}
	if err := json.Unmarshal([]byte(s.stdout), &found); err != nil {
		t.Fatalf("%v: %s", err, s.stdout)
	}
	got := []string{}
	for _, m := range found {
		got = append(got, m.Name)
		if m.AppliedAt != nil != applied || m.Version == 0 {
			t.Errorf("%+v", m)
		}
	}
	if diff := cmp.Diff(names, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestMigrateBringsTheSchemaUpAndTakesItBack(t *testing.T) {
	t.Parallel()
	d := &desk{t: t, dsn: pgtest.EmptyDSN(t)}
	all := files(t)
	status := d.idem("migrate", "status", "--json")
	status.want(t, 3)
	status.wantMigrations(t, all, false)
	d.idem("migrate", "status").want(t, 3, all[0], "missing")

	d.idem("migrate", "up").want(t, 5, "nothing was changed", "applies "+all[0], "--yes")
	d.idem("migrate", "status").want(t, 3)
	d.idem("migrate", "up", "--yes", "--json").wantMigrations(t, all, false)
	status = d.idem("migrate", "status", "--json")
	status.want(t, 0)
	status.wantMigrations(t, all, true)
	d.idem("migrate", "up").want(t, 0, "nothing to do")
	d.idem("list").want(t, 0, "no records")

	last := all[len(all)-1]
	d.idem("migrate", "down").want(t, 5, "takes "+last+" back", "a retry executes again")
	for i := range all {
		d.idem("migrate", "down", "-y").want(t, 0, "took back "+all[len(all)-1-i])
	}
	d.idem("migrate", "down", "-y").want(t, 0, "nothing to do")
	d.idem("list").want(t, 1, "idem migrate up")
}
