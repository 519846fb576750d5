package doctor_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/cmd/idem/internal/doctor"
	"github.com/idem-go/idem/lab/pgtest"
)

// asked records every statement with its arguments.
type asked struct {
	mu    sync.Mutex
	texts []string
	args  [][]any
}

func (a *asked) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.texts, a.args = append(a.texts, data.SQL), append(a.args, data.Args)
	return ctx
}

func (*asked) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// node is a node of a query plan.
type node struct {
	Kind    string  `json:"Node Type"`
	On      string  `json:"Relation Name"`
	Schema  string  `json:"Schema"`
	Rows    float64 `json:"Actual Rows"`
	Loops   float64 `json:"Actual Loops"`
	Removed float64 `json:"Rows Removed by Filter"`
	Plans   []node
}

// read returns the number of rows of tables of idem that a plan reads.
func (n *node) read() (rows float64) {
	if n.Schema == "idem" {
		rows = (n.Rows + n.Removed) * n.Loops
	}
	for i := range n.Plans {
		rows += n.Plans[i].read()
	}
	return rows
}

// The tables are just below the size from which they are not scanned without Scan. EXPLAIN shows
// how many rows each statement reads.
func TestDoctor_ReadsFewRowsOfLargeTables(t *testing.T) {
	t.Parallel()
	w := newTestDB(t)
	w.exec(`INSERT INTO idem.records (scope, key, hash, execution_id, created_at, expires_at, state)
			SELECT 's', n::text, '', gen_random_uuid(), now(), now() + '1 h', 'completed' FROM generate_series(1, 15000) n`,
		`INSERT INTO idem.operations (id, scope, key, hash, name, ttl, created_at, epoch, state, undoing, step, seq, since, wake_at, tries, attempts, ended_at)
			SELECT gen_random_uuid(), 's', n::text, '', 'n', 1, now(), 1, (ARRAY['completed', 'parked', 'running'])[1 + n % 3], false, '', 0, now(), now() - interval '1 h', 0, 0, now() FROM generate_series(1, 15000) n`,
		`INSERT INTO idem.outbox (created_at, id, held, aggregatetype, aggregateid, type)
			SELECT now(), gen_random_uuid(), n % 2 = 0, 't', n::text, 't' FROM generate_series(1, 30000) n`,
		`INSERT INTO idem.inbox (consumer, source, id, hash, state, since, expires_at)
			SELECT 'c', 's', n::text, '', CASE WHEN n % 2 = 0 THEN 'failing' ELSE 'handled' END, now(), now() FROM generate_series(1, 30000) n`,
		`INSERT INTO idem.dead_letters (side, consumer, source, id, key, type, class, reason, attempts, created_at, died_at)
			SELECT CASE WHEN n % 2 = 0 THEN 'inbox' ELSE 'outbox' END, 'c', 's', n::text, '', '', '', '', 1, now(), now() FROM generate_series(1, 30000) n`,
		"ANALYZE")
	seen := &asked{}
	pool := pgtest.Open(t, w.dsn, func(c *pgxpool.Config) {
		c.ConnConfig.Tracer, c.ConnConfig.DefaultQueryExecMode = seen, pgx.QueryExecModeExec
	})
	w.opts.Limits.ScanUpTo = 1
	results, err := doctor.Examine(t.Context(), pool, w.opts, func(string, int, int) {})
	if err != nil || len(results) != len(doctor.Names()) {
		t.Fatal(len(results), err)
	}
	conn := w.session("SET jit = off")
	explained := 0
	for i, sql := range seen.texts {
		if first := strings.TrimSpace(sql); !strings.HasPrefix(first, "SELECT") && !strings.HasPrefix(first, "WITH") {
			continue
		}
		var written string
		if err := conn.QueryRow(t.Context(), "EXPLAIN (ANALYZE, TIMING off, VERBOSE, FORMAT JSON) "+sql, seen.args[i]...).Scan(&written); err != nil {
			t.Fatalf("%v: %s", err, sql)
		}
		var plans []struct{ Plan node }
		if err := json.Unmarshal([]byte(written), &plans); err != nil {
			t.Fatal(err)
		}
		explained++
		if rows := plans[0].Plan.read(); rows > 12_000 { // the oldest held message is looked up among 10,000
			t.Errorf("%.0f rows are read by %s", rows, sql)
		}
	}
	t.Logf("%d statements", explained)
}
