package pgserver_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/idem-go/idem/lab/pgserver"
)

func TestServerIsAsAskedFor(t *testing.T) {
	t.Parallel()
	elsewhere := passable(t)
	server := start(t, pgserver.Options{
		Dir: passable(t), Data: filepath.Join(elsewhere, "data"), WAL: filepath.Join(elsewhere, "wal"),
		Settings: []string{"work_mem=5MB", "work_mem=7MB"},
		Env:      []string{"TOLD=so"},
	})
	exec(t, server, "create table told (line text)", "copy told from program 'echo $TOLD'", "alter system set work_mem = '9MB'")
	for sql, want := range map[string]string{
		"select current_setting('data_directory')": server.Data(),
		"select current_setting('work_mem')":       "7MB",
		"select inet_server_port()::text":          strings.Split(strings.SplitAfter(server.DSN(), "127.0.0.1:")[1], "/")[0],
		"select current_setting('fsync')":          "on",
		"select count(*)::text from pg_ls_waldir()": text(t, server,
			"select count(*)::text from pg_ls_dir('"+filepath.Join(elsewhere, "wal")+"') name where name ~ '^[0-9A-F]{24}$'"),
	} {
		if got := text(t, server, sql); got != want {
			t.Errorf("%s: got %s, want %s", sql, got, want)
		}
	}
	if got := text(t, server, `select count(*)::text from told where line = 'so'`); got != "1" {
		t.Errorf("the environment did not reach the server: %s rows", got)
	}
}

func TestServerThatCannotStartSaysWhy(t *testing.T) {
	t.Parallel()
	_, err := pgserver.Start(t.Context(), pgserver.Options{Bin: bin(t), Settings: []string{"no_such_setting=1"}})
	if err == nil || !strings.Contains(err.Error(), "no_such_setting") {
		t.Errorf("got %v, want what the log says", err)
	}
}
