package ledger_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/lab/torture/ledger"
	"github.com/idem-go/idem/lab/torture/rule"
)

// books is a database with the tables of the torture.
type books struct {
	t    *testing.T
	dsn  string
	pool *pgxpool.Pool
}

func open(t *testing.T) *books {
	t.Helper()
	dsn := pgtest.DSN(t)
	if err := ledger.Install(t.Context(), dsn); err != nil {
		t.Fatal(err)
	}
	return &books{t, dsn, pgtest.Open(t, dsn)}
}

var hash = idem.HashBytes([]byte("A"))

// execute writes what a worker writes.
func (b *books) execute() {
	b.t.Helper()
	ctx := b.t.Context()
	_, err := idem.Do(ctx, b.pool, "s", "k", hash, func(tx pgx.Tx) (idem.Response, error) {
		id, _ := idem.ExecutionID(tx)
		resp := idem.Response{Status: 201, Header: map[string][]string{"A": {"b", "c"}}, Body: []byte("k")}
		e := ledger.Effect{ExecutionID: id, Op: 1, Scope: "s", Key: "k", Payload: "A", Digest: ledger.Digest(resp), TTL: time.Hour.Microseconds()}
		return resp, errors.Join(e.Note(ctx, tx, hash), ledger.Transfer{From: 1, To: 2, Amount: 7}.Write(ctx, tx, id))
	}, idem.WithTTL(time.Hour))
	if err != nil {
		b.t.Fatal(err)
	}
}

// findings returns the rules that the database breaks.
func (b *books) findings() (rules []rule.Rule) {
	b.t.Helper()
	state, err := ledger.Take(b.t.Context(), b.connect(""))
	if err != nil {
		b.t.Fatal(err)
	}
	for _, f := range state.Findings {
		rules = append(rules, f.Rule)
	}
	return rules
}

// connect opens a connection with further parameters.
func (b *books) connect(parameters string) *pgx.Conn {
	b.t.Helper()
	conn, err := pgx.Connect(b.t.Context(), b.dsn+parameters)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

// Each rule is broken by hand and must be found.
func TestEveryRuleOfTheDatabaseFindsWhatBreaksIt(t *testing.T) {
	t.Parallel()
	for want, breaks := range map[rule.Rule]string{
		rule.Processing:  "update idem.records set state = 'processing', completed_at = null",
		rule.OneRecord:   "alter table idem.records drop constraint records_pkey; insert into idem.records select * from idem.records",
		rule.Completed:   "delete from torture.effects",
		rule.Rejected:    "update idem.records set state = 'failed'",
		rule.SameRequest: "update idem.records set hash = sha256(hash)",
		rule.Record:      "delete from idem.records",
		rule.Retained:    "delete from idem.records",
		rule.Grace: `update idem.records set expires_at = clock_timestamp(); delete from idem.records;
			update torture.purged set expires_at = deleted_at`,
		rule.PurgedProcessing: `update idem.records set state = 'processing', expires_at = now() - interval '1 hour';
			delete from idem.records`,
		rule.OneEffect:   "insert into torture.effects select * from torture.effects",
		rule.WholeEffect: "delete from torture.entries where amount > 0",
		rule.Balances:    "update torture.accounts set balance = balance + 1 where id = 1",
		rule.WholeCaller: "insert into torture.outers values (1, 's', 'k', 'before')",
	} {
		t.Run(string(want), func(t *testing.T) {
			t.Parallel()
			b := open(t)
			b.execute()
			if found := b.findings(); len(found) > 0 {
				t.Fatalf("before anything is broken: %q", found)
			}
			if _, err := b.pool.Exec(t.Context(), breaks, pgx.QueryExecModeSimpleProtocol); err != nil {
				t.Fatal(err)
			}
			if found := b.findings(); !slices.Contains(found, want) {
				t.Errorf("found %q", found)
			}
		})
	}
}

func TestSessionsAndLocksThatAreLeftOverAreFound(t *testing.T) {
	t.Parallel()
	b := open(t)
	watching := b.connect("")
	b.pool.Close()
	if left, err := ledger.Leftovers(t.Context(), watching, 2*time.Minute); err != nil || len(left) > 0 {
		t.Fatalf("%v, %v", left, err)
	}
	worker := b.connect("&application_name=torture%20direct")
	if _, err := worker.Exec(t.Context(), "select pg_advisory_lock(1)"); err != nil {
		t.Fatal(err)
	}
	left, err := ledger.Leftovers(t.Context(), watching, 0)
	for _, want := range []rule.Rule{rule.NoConnection, rule.NoLock} {
		if !slices.ContainsFunc(left, func(f rule.Violation) bool { return f.Rule == want }) || err != nil {
			t.Errorf("%s: found %v, %v", want, left, err)
		}
	}
}
