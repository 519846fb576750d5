package address_test

import (
	"net"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/cmd/idem/internal/address"
)

func env(pairs map[string]string) func(string) string {
	return func(name string) string { return pairs[name] }
}

func TestConfig_RefusesOtherURLsWithoutThePassword(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"postgress://me:hunter2@db/shop", "mysql://me:hunter2@db/shop", "POSTGRES //x://me:hunter2@db", "://me:hunter2@db"} {
		for where, try := range map[string]func() error{
			"-d": func() error {
				_, err := address.Flags{DBName: bad}.Config(env(nil), "stats")
				return err
			},
			"DATABASE_URL": func() error {
				_, err := address.Flags{}.Config(env(map[string]string{"DATABASE_URL": bad}), "stats")
				return err
			},
		} {
			err := try()
			if err == nil || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%s %q: %v", where, bad, err)
			}
		}
	}
	for _, good := range []string{"postgres://me:hunter2@db/shop", "postgresql://db", "host=db password='a://b'", "shop"} {
		if _, err := (address.Flags{DBName: good}).Config(env(nil), "stats"); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
}

func TestRefused_NamesEachHostWithItsAnswer(t *testing.T) {
	t.Parallel()
	closed := func() string { // an address without a listener
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		return l.Addr().String()
	}
	first, second := closed(), closed()
	config, err := address.Flags{DBName: "postgres://me:hunter2@" + first + "," + second + "/shop?sslmode=prefer"}.Config(env(nil), "stats")
	if err != nil {
		t.Fatal(err)
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	refused := address.Refused(pool.Ping(t.Context())).Error()
	for _, part := range []string{first + ": connection refused", second + ": connection refused", `database "shop"`, `role "me"`} {
		if strings.Count(refused, part) != 1 {
			t.Errorf("%q does not contain exactly once: %s", refused, part)
		}
	}
	if strings.Contains(refused, "hunter2") {
		t.Error("the error contains the password")
	}
}
