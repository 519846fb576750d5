package command_test

import (
	"flag"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/idem-go/idem/cmd/idem/internal/command"
	"github.com/idem-go/idem/lab/pgtest"
)

var records = flag.Int("records", 100_000, "how many records the benchmark has")

// BenchmarkCommands measures commands, including the connection, on a database with many records.
// Half of them have expired, and there are a tenth as many messages. None of these commands may
// scan the whole table.
func BenchmarkCommands(b *testing.B) {
	dsn := pgtest.DSN(b)
	pool := pgtest.Open(b, dsn)
	for _, sql := range []string{
		"ALTER TABLE idem.records SET (autovacuum_enabled = off)",
		`INSERT INTO idem.records (scope, key, hash, execution_id, created_at, expires_at, state, status, completed_at, body)
			SELECT 'tenant-' || n % 100, md5(n::text), decode(md5(n::text) || md5(n::text), 'hex'), md5(n::text)::uuid,
				now() - interval '1 d', now() + interval '12 h' * (1 - 2 * (n % 2)), 'completed', 201, now() - interval '1 d', convert_to(repeat('x', 100), 'UTF8')
			FROM generate_series(1, $1) n`,
		`INSERT INTO idem.inbox (consumer, source, id, hash, state, since, expires_at)
			SELECT 'billing', 'orders', md5(n::text), decode(md5(n::text) || md5(n::text), 'hex'), 'handled', now(), now() + interval '7 d' FROM generate_series(1, $1 / 20) n`,
		`INSERT INTO idem.outbox (created_at, id, aggregatetype, aggregateid, type, payload, headers)
			SELECT now(), md5(n::text)::uuid, 'orders-' || n % 10, md5((n % 1000)::text), 'placed', convert_to(repeat('x', 100), 'UTF8'), '{}' FROM generate_series(1, $1 / 20) n`,
		"ANALYZE", "CHECKPOINT",
	} {
		var args []any
		if strings.Contains(sql, "$1") {
			args = append(args, *records)
		}
		if _, err := pool.Exec(b.Context(), sql, args...); err != nil {
			b.Fatal(err)
		}
	}
	b.Setenv("DATABASE_URL", dsn)
	for name, args := range map[string][]string{
		"stats": {"stats"}, "list": {"list"}, "list-scope": {"list", "--scope", "tenant-77"},
		"show": {"show", "tenant-1", "c4ca4238a0b923820dcc509a6f75849b"}, "explain": {"explain", "tenant-1", "c4ca4238a0b923820dcc509a6f75849b"},
		"doctor": {"doctor"}, "stuck": {"stuck"}, "outbox-stats": {"outbox", "stats"}, "inbox-stats": {"inbox", "stats"},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				code := command.Run(b.Context(), command.World{
					Args: args, Getenv: os.Getenv, Now: time.Now, Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: os.Stderr,
				})
				if code != 0 && code != 3 && code != 6 {
					b.Fatalf("exit code %d", code)
				}
			}
			b.ReportMetric(float64(*records), "records")
		})
	}
}
