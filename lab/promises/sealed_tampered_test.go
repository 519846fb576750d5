package promises_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/seal"
)

// Each statement is made by someone who can write to the table and has no key. It changes the
// record of the key "k". The table also has a record of "other", and one of the same key in another
// scope.
var tampering = map[string]struct {
	sql  string
	want error
}{
	"the body of another record": {`update idem.records r set body = o.body from idem.records o where r.key = 'k' and o.key = 'other'`, seal.ErrTampered},
	"all of another record's outcome": {`update idem.records r set execution_id = o.execution_id, state = o.state, status = o.status, body = o.body,
		sealed_by = o.sealed_by, completed_at = o.completed_at, created_at = o.created_at from idem.records o where r.key = 'k' and o.key = 'other'`, seal.ErrTampered},
	"another record, under this key": {`delete from idem.records where key = 'k'; update idem.records set key = 'k' where key = 'other'`, seal.ErrTampered},
	"a record of another scope": {`delete from idem.records where key = 'k' and scope <> 'elsewhere';
		update idem.records set scope = 'tenant-1/POST orders' where scope = 'elsewhere'`, seal.ErrTampered},
	"another execution id":     {`update idem.records set execution_id = '11111111-1111-4111-8111-111111111111' where key = 'k'`, seal.ErrTampered},
	"rejected, not completed":  {`update idem.records set state = 'failed' where key = 'k'`, seal.ErrTampered},
	"another status":           {`update idem.records set status = 200 where key = 'k'`, seal.ErrTampered},
	"no status":                {`update idem.records set status = null where key = 'k'`, seal.ErrTampered},
	"cut short":                {`update idem.records set body = substr(body, 1, length(body) - 1) where key = 'k'`, seal.ErrTampered},
	"cut at the front":         {`update idem.records set body = substr(body, 2) where key = 'k'`, seal.ErrTampered},
	"longer":                   {`update idem.records set body = body || '\x00' where key = 'k'`, seal.ErrTampered},
	"a bit":                    {`update idem.records set body = set_bit(body, 300, 1 - get_bit(body, 300)) where key = 'k'`, seal.ErrTampered},
	"empty":                    {`update idem.records set body = '' where key = 'k'`, seal.ErrTampered},
	"gone":                     {`update idem.records set body = null where key = 'k'`, seal.ErrTampered},
	"a header beside it":       {`update idem.records set header = '{"Location": ["/evil"]}' where key = 'k'`, seal.ErrTampered},
	"an empty header":          {`update idem.records set header = '{}' where key = 'k'`, seal.ErrTampered},
	"a header that is none":    {`update idem.records set header = '[4929123456789012]' where key = 'k'`, seal.ErrTampered},
	"plain text in its place":  {`update idem.records set body = 'plain' where key = 'k'`, seal.ErrTampered},
	"another key that exists":  {`update idem.records set sealed_by = 'b' where key = 'k'`, seal.ErrTampered},
	"another key":              {`update idem.records set sealed_by = 'c' where key = 'k'`, seal.ErrUnknownKey},
	"the mark taken away":      {`update idem.records set sealed_by = null where key = 'k'`, seal.ErrPlain},
	"the mark made empty":      {`update idem.records set sealed_by = '' where key = 'k'`, seal.ErrPlain},
	"plain, as of an old call": {`update idem.records set sealed_by = null, header = '{"A": ["b"]}', body = 'plain' where key = 'k'`, seal.ErrPlain},
}

func TestSealedResponseThatSomebodyHasTamperedWithIsAnErrorThatSaysHow(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for name, test := range tampering {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLedger(t)
			for _, of := range []struct{ scope, key string }{{scope, "k"}, {scope, "other"}, {"elsewhere", "k"}} {
				if _, err := idemDo(ctx, l.pool, of.scope, of.key, hashA, l.charge("k"), sealed("a")); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := l.pool.Exec(ctx, test.sql); err != nil {
				t.Fatal(err)
			}
			runs := l.runs.Load()
			wantSealError(t, l, test.want, sealed("a b"))
			if want := test.want; want != seal.ErrPlain {
				wantSealError(t, l, want, sealed("a b", seal.AcceptPlain()))
			} else if name != "plain, as of an old call" { // an old plain record is accepted
				wantSealError(t, l, seal.ErrTampered, sealed("a b", seal.AcceptPlain()))
			}
			if n := l.runs.Load(); n != runs {
				t.Errorf("fn ran %d times", n-runs)
			}
		})
	}
}

// A client must not get the response to another request because the record was changed to contain
// the hash of the client's request.
func TestSealedAnswerToAnotherRequestDoesNotOpen(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	if _, err := idemDo(ctx, l.pool, scope, "k", hashB, l.charge("k"), sealed("a b")); err != nil {
		t.Fatal(err)
	}
	if _, err := l.pool.Exec(ctx, "update idem.records set hash = $1", hashA[:]); err != nil {
		t.Fatal(err)
	}
	wantSealError(t, l, seal.ErrTampered, sealed("a b"))
}

// wantSealError fails the test unless every way to replay "k" returns this error and no other error
// of package seal.
func wantSealError(t *testing.T, l *ledger, want error, opts ...idem.Option) {
	t.Helper()
	ctx := context.Background()
	check := func(how string, res idem.Result, err error) {
		t.Helper()
		if !errors.Is(err, idem.ErrUnreadable) || res.Body != nil || res.Header != nil || res.ExecutionID != "" {
			t.Errorf("%s: %+v, %v", how, res, err)
		}
		for _, known := range []error{seal.ErrUnknownKey, seal.ErrTampered, seal.ErrPlain} {
			if errors.Is(err, known) != (known == want) {
				t.Errorf("%s: want %v, got %v", how, want, err)
			}
		}
	}
	res, err := idemDo(ctx, l.pool, scope, "k", hashA, l.charge("k"), opts...)
	check("Do", res, err)
	res, err = idemDo(ctx, l.pool, scope, "k", hashA, l.charge("k"), append(opts, idem.WithReplayLikely())...)
	check("likely replay", res, err)
	err = pgx.BeginFunc(ctx, l.pool, func(tx pgx.Tx) error {
		res, err = idem.DoTx(ctx, tx, scope, "k", hashA, l.charge("k"), opts...)
		return nil
	})
	if err != nil {
		check("DoTx", res, fmt.Errorf("the caller's COMMIT: %w", err))
	}
}

// As docs/sealing.md says, a role that can write to the table can change when a record expires.
func TestTimesOfASealedRecordAreNotBound(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	first, err := idemDo(ctx, l.pool, scope, "k", hashA, l.charge("k"), sealed("a"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.pool.Exec(ctx, "update idem.records set expires_at = expires_at + interval '1 year', created_at = 'epoch', completed_at = 'epoch'"); err != nil {
		t.Fatal(err)
	}
	if again, err := idemDo(ctx, l.pool, scope, "k", hashA, l.charge("k"), sealed("a")); err != nil || string(again.Body) != string(first.Body) {
		t.Errorf("%+v, %v", again, err)
	}
}
