package ledger_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
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

func (b *books) exec(sql string) {
	b.t.Helper()
	if _, err := b.pool.Exec(b.t.Context(), sql, pgx.QueryExecModeSimpleProtocol); err != nil {
		b.t.Fatal(err)
	}
}

var hash = idem.HashBytes([]byte("A"))

// execute writes what a worker writes.
func (b *books) execute(key string, fail error) idem.Result {
	b.t.Helper()
	ctx := b.t.Context()
	res, err := idem.Do(ctx, b.pool, "s", key, hash, func(tx pgx.Tx) (idem.Response, error) {
		id, _ := idem.ExecutionID(tx)
		resp := idem.Response{Status: 201, Header: map[string][]string{"A": {"b", "c"}}, Body: []byte(key)}
		e := ledger.Effect{ExecutionID: id, Op: 1, Scope: "s", Key: key, Payload: "A", Digest: ledger.Digest(resp), TTL: time.Hour.Microseconds()}
		if err := e.Note(ctx, tx, hash); err != nil {
			return resp, err
		}
		if err := (ledger.Transfer{From: 1, To: 2, Amount: 7}).Write(ctx, tx, id); err != nil {
			return resp, err
		}
		return resp, fail
	}, idem.WithTTL(time.Hour))
	if err != nil {
		b.t.Fatal(err)
	}
	return res
}

func (b *books) take() *ledger.State {
	b.t.Helper()
	conn, err := pgx.Connect(b.t.Context(), b.dsn)
	if err != nil {
		b.t.Fatal(err)
	}
	defer conn.Close(context.Background())
	state, err := ledger.Take(b.t.Context(), conn)
	if err != nil {
		b.t.Fatal(err)
	}
	return state
}

func (b *books) findings() []rule.Rule {
	b.t.Helper()
	var rules []rule.Rule
	for _, f := range b.take().Findings {
		rules = append(rules, f.Rule)
	}
	return rules
}

func TestTheStateHasEffectAndRecordOfAnExecution(t *testing.T) {
	t.Parallel()
	b := open(t)
	res := b.execute("k", nil)
	state := b.take()
	if len(state.Effects) != 1 || len(state.Records) != 1 || len(state.Findings) > 0 {
		t.Fatalf("%+v", state)
	}
	effect, record := state.Effects[0], state.Records[0]
	digest := ledger.Digest(res.Response)
	wantRecord := &ledger.Record{
		ExecutionID: res.ExecutionID, Scope: "s", Key: "k", State: "completed", Digest: digest,
		Created: res.CreatedAt.UnixMicro(), Completed: res.CompletedAt.UnixMicro(), Expires: res.ExpiresAt.UnixMicro(),
	}
	if diff := cmp.Diff(wantRecord, record); diff != "" {
		t.Error(diff)
	}
	wantEffect := &ledger.Effect{
		ExecutionID: res.ExecutionID, Op: 1, Scope: "s", Key: "k", Payload: "A", Digest: digest, TTL: time.Hour.Microseconds(),
	}
	if effect.Noted < record.Created || effect.Noted > record.Completed {
		t.Fatalf("%+v", effect)
	}
	effect.Noted = 0
	if diff := cmp.Diff(wantEffect, effect); diff != "" {
		t.Error(diff)
	}
}

// Each rule is broken by hand and must be found.
func TestEveryRuleOfTheDatabaseFindsWhatBreaksIt(t *testing.T) {
	t.Parallel()
	for want, breakIt := range map[rule.Rule]func(*books){
		rule.Processing: func(b *books) {
			b.exec("update idem.records set state = 'processing', completed_at = null")
		},
		rule.OneRecord: func(b *books) {
			b.exec("alter table idem.records drop constraint records_pkey; insert into idem.records select * from idem.records")
		},
		rule.Completed: func(b *books) { b.exec("delete from torture.effects") },
		rule.Rejected:  func(b *books) { b.exec("update idem.records set state = 'failed'") },
		rule.SameRequest: func(b *books) {
			b.exec("update idem.records set hash = sha256(hash)")
		},
		rule.Record:   func(b *books) { b.exec("delete from idem.records") },
		rule.Retained: func(b *books) { b.exec("delete from idem.records") },
		rule.Grace: func(b *books) {
			b.exec("update idem.records set expires_at = clock_timestamp(); delete from idem.records; update torture.purged set expires_at = deleted_at")
		},
		rule.PurgedProcessing: func(b *books) {
			b.exec("update idem.records set state = 'processing', expires_at = now() - interval '1 hour'; delete from idem.records")
		},
		rule.OneEffect: func(b *books) { b.exec("insert into torture.effects select * from torture.effects") },
		rule.WholeEffect: func(b *books) {
			b.exec("delete from torture.entries where amount > 0")
		},
		rule.Balances: func(b *books) {
			b.exec("update torture.accounts set balance = balance + 1 where id = 1")
		},
		rule.WholeCaller: func(b *books) {
			b.exec("insert into torture.outers values (1, 's', 'k', 'before')")
		},
	} {
		t.Run(string(want), func(t *testing.T) {
			t.Parallel()
			b := open(t)
			b.execute("k", nil)
			if found := b.findings(); len(found) > 0 {
				t.Fatalf("before anything is broken: %q", found)
			}
			breakIt(b)
			if found := b.findings(); !slices.Contains(found, want) {
				t.Errorf("found %q", found)
			}
		})
	}
}

// An effect whose record was taken over after its expiry is not a finding.
func TestAnEffectWithASuccessorIsFine(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.execute("k", nil)
	b.exec("update idem.records set expires_at = clock_timestamp(); update torture.effects set ttl_us = 0")
	b.execute("k", idem.Reject(idem.Response{Status: 402}))
	if found := b.findings(); len(found) > 0 {
		t.Errorf("found %q", found)
	}
}

// An effect whose record was purged after its expiry is not a finding.
func TestAnEffectWhoseRecordWasPurgedIsFine(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.execute("k", nil)
	b.exec("update idem.records set expires_at = now() - interval '1 hour'; update torture.effects set ttl_us = 0; delete from idem.records")
	if found := b.findings(); len(found) > 0 {
		t.Errorf("found %q", found)
	}
}

func TestSessionsAndLocksThatAreLeftOverAreFound(t *testing.T) {
	t.Parallel()
	b := open(t)
	watching, err := pgx.Connect(t.Context(), b.dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer watching.Close(context.Background())
	b.pool.Close()
	if left, err := ledger.Leftovers(t.Context(), watching, 2*time.Minute); err != nil || len(left) > 0 {
		t.Fatalf("%v, %v", left, err)
	}
	worker, err := pgx.Connect(t.Context(), b.dsn+"&application_name="+"torture%20direct")
	if err != nil {
		t.Fatal(err)
	}
	defer worker.Close(context.Background())
	if _, err := worker.Exec(t.Context(), "select pg_advisory_lock(1)"); err != nil {
		t.Fatal(err)
	}
	left, err := ledger.Leftovers(t.Context(), watching, 0)
	var rules []rule.Rule
	for _, f := range left {
		rules = append(rules, f.Rule)
	}
	slices.Sort(rules)
	if diff := cmp.Diff([]rule.Rule{rule.NoConnection, rule.NoLock}, slices.Compact(rules)); diff != "" || err != nil {
		t.Errorf("%s %v", diff, err)
	}
}
