package pgserver_test

import (
	"testing"

	"github.com/idem-go/idem/lab/pgserver"
)

func TestStandbyFollowsItsPrimaryAndTakesOver(t *testing.T) {
	t.Parallel()
	primary := start(t, pgserver.Options{})
	exec(t, primary, "create table rows (n int)", "insert into rows values (1)")
	standby, err := primary.Standby(t.Context(), "second", pgserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, standby)
	exec(t, primary, "alter system set synchronous_standby_names = 'second'", "select pg_reload_conf()")
	eventually(t, "the standby is synchronous", func() bool {
		return text(t, primary, "select coalesce(string_agg(sync_state, ','), '') from pg_stat_replication where application_name = 'second'") == "sync"
	})
	exec(t, primary, "insert into rows values (2)")
	if got := text(t, standby, "select pg_is_in_recovery()::text"); got != "true" {
		t.Errorf("in recovery: %s", got)
	}

	primary.Kill()
	if err := standby.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	exec(t, standby, "insert into rows values (3)")
	if got := text(t, standby, "select count(*)::text from rows"); got != "3" {
		t.Errorf("%s rows, want 3", got)
	}
	if err := standby.Stop(pgserver.Fast); err != nil {
		t.Error(err)
	}
}
