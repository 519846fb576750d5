package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem/lab/optional"
)

func TestDrop_LeavesDatabasesOfOthers(t *testing.T) {
	t.Parallel()
	srv := localServer(t)
	before := databasesOf(t, srv)
	dbs := mustPrepare(t, srv)
	for _, name := range []string{dbs.template + "_from_a_test", dbs.template + "1", "somebody_elses"} {
		if err := dbs.exec(t.Context(), "CREATE DATABASE "+ident(name)+" TEMPLATE "+ident(dbs.template)); err != nil {
			t.Fatal(err)
		}
	}
	dbs.drop()
	want := append(before, dbs.template+"1", "somebody_elses")
	slices.Sort(want)
	if diff := cmp.Diff(want, databasesOf(t, srv)); diff != "" {
		t.Errorf("databases (-want +got):\n%s", diff)
	}
}

func TestPrepare_DropsDatabasesOfKilledRunsOnly(t *testing.T) {
	t.Parallel()
	srv := localServer(t)
	living := mustPrepare(t, srv)
	defer living.drop()
	for _, name := range []string{"idem_test_0123abcd", "idem_test_0123abcd_from_a_test", "idem_test_by_hand"} {
		if err := living.exec(t.Context(), "CREATE DATABASE "+name); err != nil {
			t.Fatal(err)
		}
	}

	mustPrepare(t, srv).drop()
	var left []string
	for _, name := range databasesOf(t, srv) {
		if strings.HasPrefix(name, namePrefix) {
			left = append(left, name)
		}
	}
	want := []string{living.template, living.own, "idem_test_by_hand"}
	slices.Sort(want)
	if diff := cmp.Diff(want, left); diff != "" {
		t.Errorf("databases (-want +got):\n%s", diff)
	}
}

func mustPrepare(t *testing.T, srv *server) *databases {
	t.Helper()
	dbs, err := prepare(t.Context(), srv)
	if err != nil {
		t.Fatal(err)
	}
	return dbs
}

// localServer starts a server for one test.
func localServer(t *testing.T) *server {
	t.Helper()
	optional.Program(t, "postgres")
	dir, err := newRunDir(false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(dir.remove)
	srv, err := startLocal(t.Context(), config{settings: testSettings()}, dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.stop)
	return srv
}

func databasesOf(t *testing.T, srv *server) []string {
	t.Helper()
	conn, err := connectAs(t.Context(), srv.url, "test")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	names, err := databaseNames(t.Context(), conn, `SELECT datname FROM pg_database ORDER BY datname COLLATE "C"`)
	if err != nil {
		t.Fatal(err)
	}
	return names
}
