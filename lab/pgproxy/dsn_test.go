package pgproxy_test

import (
	"net"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

func TestDSNKeepsAllButTheAddress(t *testing.T) {
	t.Parallel()
	for name, dsn := range map[string]string{
		"URL":                   "postgres://alice:s3cret@db.example:5433/orders",
		"URL with parameters":   "postgresql://alice:s3cret@db.example/orders?application_name=x&port=99",
		"URL of a unix socket":  "postgres:///orders?host=/run/postgresql&user=alice&password=s3cret",
		"URL ending in ?":       "postgres://alice:s3cret@db.example/orders?",
		"URL, ? in password":    "postgres://alice:s3?ret@db.example/orders",
		"URL, several hosts":    "postgres://alice:s3cret@a:1,b:2/orders",
		"keywords":              "host=db.example port=5433 user=alice password=s3cret dbname=orders",
		"keywords, unix socket": "host=/run/postgresql user=alice password='s3 cret' dbname=orders",
		"keywords, TLS wished":  "host=db.example user=alice password=s3cret dbname=orders sslmode=prefer",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := startFor(t, dsn)
			before, err := pgconn.ParseConfig(dsn)
			if err != nil {
				t.Fatal(err)
			}
			after, err := pgconn.ParseConfig(p.DSN())
			if err != nil {
				t.Fatal(err)
			}
			addr := p.Addr().(*net.TCPAddr)
			if after.Host != addr.IP.String() || int(after.Port) != addr.Port || after.TLSConfig != nil || len(after.Fallbacks) != 0 {
				t.Errorf("%s leads to %s:%d, want %s", p.DSN(), after.Host, after.Port, addr)
			}
			if after.User != before.User || after.Password != before.Password || after.Database != before.Database {
				t.Errorf("%s is another login than %s", p.DSN(), dsn)
			}
			if after.RuntimeParams["application_name"] != before.RuntimeParams["application_name"] {
				t.Errorf("%s has other parameters than %s", p.DSN(), dsn)
			}
		})
	}
}
