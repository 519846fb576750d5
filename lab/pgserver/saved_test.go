package pgserver_test

import (
	"os"
	"testing"

	"github.com/idem-go/idem/lab/pgserver"
)

func TestServers_BeginWithSavedData(t *testing.T) {
	server, err := pgserver.Create(t.Context(), pgserver.Options{Bin: bin(t)})
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, server)
	saved := t.TempDir()
	mark := server.Data() + "/saved"
	if err := os.WriteFile(mark, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := server.SaveData(t.Context(), saved); err != nil {
		t.Fatal(err)
	}
	t.Setenv(pgserver.SavedData, saved)
	for range 2 { // both servers run at the same time
		begun := start(t, pgserver.Options{})
		if _, err := os.Stat(begun.Data() + "/saved"); err != nil {
			t.Errorf("the server did not begin with the saved data: %v", err)
		}
		exec(t, begun, "create table beside_the_other ()")
	}
	elsewhere := start(t, pgserver.Options{WAL: passable(t) + "/wal"})
	if _, err := os.Stat(elsewhere.Data() + "/saved"); err == nil {
		t.Error("a server with a WAL directory of its own began with the saved data")
	}
}
