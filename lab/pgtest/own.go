package pgtest

import (
	"os"
	"testing"

	"github.com/idem-go/idem/lab/optional"
	"github.com/idem-go/idem/lab/pgserver"
)

// Server starts a server that only this test uses, without the schema of idem. Use it for
// server-wide counters and for settings that must not affect other tests. The programs come from
// IDEM_TEST_POSTGRES_BIN or from the machine. The test is skipped if there are none. The server is
// closed at the end of the test.
func Server(t testing.TB, settings ...string) *pgserver.Server {
	t.Helper()
	bin, err := pgserver.Find(os.Getenv("IDEM_TEST_POSTGRES_BIN"))
	optional.Require(t, err)
	server, err := pgserver.Start(t.Context(), pgserver.Options{Bin: bin, Settings: append([]string{"fsync=off"}, settings...)})
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
