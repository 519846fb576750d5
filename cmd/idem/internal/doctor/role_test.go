package doctor_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/url"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/lab/pgtest"
)

// role creates a role for the test and returns the address with it.
func (w *testDB) role(attributes string) string {
	w.t.Helper()
	name := fmt.Sprintf("idem_test_%08x", rand.Uint32())
	w.exec("CREATE ROLE " + name + " LOGIN PASSWORD 'secret' " + attributes)
	w.t.Cleanup(func() { // after the database is dropped, where the role may own objects
		conn, err := pgx.Connect(context.Background(), w.dsn)
		if err != nil {
			w.t.Error(err)
			return
		}
		defer conn.Close(context.Background())
		for _, sql := range []string{"DROP OWNED BY " + name, "DROP ROLE " + name} {
			if _, err := conn.Exec(context.Background(), sql); err != nil {
				w.t.Error(err)
			}
		}
	})
	return w.with(func(u *url.URL) { u.User = url.UserPassword(name, "secret") })
}

func emptyTestDB(t *testing.T) *testDB {
	t.Helper()
	return testDBAt(t, pgtest.EmptyDSN(t))
}

func roleOf(t *testing.T, dsn string) string {
	t.Helper()
	address, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	return address.User.Username()
}
