package pgtest

import (
	"os"
	"testing"

	"github.com/idem-go/idem/lab/optional"
	"github.com/idem-go/idem/lab/pgserver"
)

// Server starts a server that no other test writes to, without the schema: for what is counted of a whole server, and for settings
// that others should not have. It is started from the programs that IDEM_TEST_POSTGRES_BIN says, or that are installed, and is gone
// when the test is over. Without such programs the test is skipped.
func Server(t testing.TB, settings ...string) *pgserver.Server {
	t.Helper()
	found, err := pgserver.Find(os.Getenv("IDEM_TEST_POSTGRES_BIN"))
	optional.Require(t, err)
	server, err := pgserver.Start(t.Context(), pgserver.Options{Bin: found[0].Dir, Settings: append([]string{"fsync=off"}, settings...)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Errorf("pgtest: close the server: %v", err)
		}
	})
	return server
}
