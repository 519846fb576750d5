package pgserver_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/lab/pgserver"
)

func TestServerRefusesAnotherPasswordAndChecksItsOwnAtTheCostOfOneHash(t *testing.T) {
	t.Parallel()
	server := start(t, pgserver.Options{})
	if kept := text(t, server, "select rolpassword from pg_authid where rolname = 'postgres'"); !strings.HasPrefix(kept, "SCRAM-SHA-256$1:") {
		t.Errorf("kept is %s", kept)
	}
	dsn, err := url.Parse(server.DSN())
	if err != nil {
		t.Fatal(err)
	}
	dsn.User = url.UserPassword("postgres", "another")
	conn, err := pgx.Connect(t.Context(), dsn.String())
	if err == nil {
		conn.Close(t.Context())
		t.Error("another password is let in")
	}
}
