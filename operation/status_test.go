package operation_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/operation"
)

// fill inserts n operations of a name and a state. They were begun one minute after the other, the
// first one an hour ago.
func (s *shop) fill(name string, state operation.State, n int) {
	s.t.Helper()
	s.exec(`
		insert into idem.operations (id, scope, key, hash, name, ttl, created_at, epoch, state, undoing, step, seq, since, wake_at, tries, attempts, reason, reason_step, reason_text, ended_at)
		select gen_random_uuid(), $1 || '/' || n, n::text, '', $1, 0, clock_timestamp() - interval '1 hour' + n * interval '1 minute', 1, $2, false,
		       'step ' || n % 2, 1, clock_timestamp(), clock_timestamp() + interval '1 day', 0, 0, case when $2 = 'parked' then 'call_in_doubt' end,
		       case when $2 = 'parked' then 'step ' || n % 2 end, case when $2 = 'parked' then 'the text' end,
		       case when $2 not in ('running', 'parked') then clock_timestamp() end
		from generate_series(0, $3 - 1) n`, name, string(state), n)
}

// list returns all operations that a filter selects.
func (s *shop) list(f operation.Filter) (all []operation.Listed) {
	s.t.Helper()
	for o, err := range operation.All(s.t.Context(), s.pool, f) {
		must(s.t, err)
		all = append(all, o)
	}
	return all
}

func TestAll_PagesThroughTheFilter(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.fill("checkout", "parked", 20)
	s.fill("checkout", "running", 10)
	s.fill("checkout", "completed", 12)
	s.fill("refund", "parked", 5)
	s.fill("refund", "undone", 3)
	for i := range 4 { // more than a page
		s.fill(fmt.Sprint("renewal ", i), "failed", 50)
	}
	for _, test := range []struct {
		name   string
		filter operation.Filter
		want   int
	}{
		{"all", operation.Filter{}, 250},
		{"of a state", operation.Filter{State: "parked"}, 25},
		{"that run", operation.Filter{State: "running"}, 10},
		{"that have ended", operation.Filter{State: "completed"}, 12},
		{"of a name", operation.Filter{Name: "refund"}, 8},
		{"of a name and a state", operation.Filter{Name: "refund", State: "parked"}, 5},
		{"at a step", operation.Filter{State: "parked", Step: "step 1"}, 12},
		{"of a scope", operation.Filter{Scope: "checkout/1"}, 11 + 1 + 3},
		{"older than 55 minutes", operation.Filter{Older: 55 * time.Minute, State: "parked"}, 6 + 5},
		{"that are not there", operation.Filter{Name: "nothing"}, 0},
	} {
		got := s.list(test.filter)
		ids := map[string]bool{}
		for _, o := range got {
			ids[o.ID] = true
			if f := test.filter; f.State != "" && o.State != f.State || f.Name != "" && o.Name != f.Name || !strings.HasPrefix(o.Scope, f.Scope) ||
				o.CreatedAt.IsZero() || o.EndedAt.IsZero() == (o.State != "running" && o.State != "parked") || (o.Reason == operation.ReasonCallInDoubt) != (o.State == operation.StateParked) || (o.ReasonText == "the text") != (o.State == operation.StateParked) {
				t.Errorf("%s: %+v", test.name, o)
			}
		}
		if len(got) != test.want || len(ids) != test.want {
			t.Errorf("%s: %d operations, %d different ones, want %d", test.name, len(got), len(ids), test.want)
		}
	}
}

func TestAll_RefusesAnInvalidFilter(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	for _, f := range []operation.Filter{{State: "broken"}, {After: "'"}, {Older: -1}} {
		for _, err := range operation.All(t.Context(), s.pool, f) {
			if err == nil {
				t.Errorf("%+v was accepted", f)
			}
		}
	}
	if _, err := operation.RetryAll(t.Context(), s.pool, operation.Filter{State: "running"}); err == nil {
		t.Error("RetryAll of what runs")
	}
	for _, state := range []operation.State{"", operation.StateCompleted} {
		if _, err := operation.CancelAll(t.Context(), s.pool, operation.Filter{State: state}); err == nil {
			t.Errorf("CancelAll of state %q", state)
		}
	}
}

func TestRetryAllCancelAll_ActOnceOnEach(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.fill("checkout", "parked", 7)
	s.fill("refund", "parked", 2)
	s.fill("refund", "running", 4)
	s.fill("refund", "completed", 4)
	n, err := operation.RetryAll(t.Context(), s.pool, operation.Filter{Name: "checkout"})
	if n != 7 || err != nil {
		t.Errorf("%d were retried, %v", n, err)
	}
	s.wantCount(7, `select count(*) from idem.operations where name = 'checkout' and state = 'running' and epoch = 2`)
	n, err = operation.CancelAll(t.Context(), s.pool, operation.Filter{Name: "refund", State: "running"})
	if n != 4 || err != nil {
		t.Errorf("%d were canceled, %v", n, err)
	}
	s.wantCount(4, `select count(*) from idem.operations where canceled`)
	s.wantCount(2, `select count(*) from idem.operations where name = 'refund' and state = 'parked'`)
}

func TestWait_SaysWhyThereIsNoAnswer(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		end  func(op *operation.Op) error
		then string // SQL
		want error
	}{
		{"parked", func(op *operation.Op) error {
			_, err := operation.Call(op, "call", operation.Once, lost)
			return err
		}, "", operation.ErrParked},
		{"undone", func(op *operation.Op) error { return errors.Join(op.Checkpoint(), operation.Final(errDeclined)) }, "", operation.ErrUndone},
		{"rejected", func(op *operation.Op) error { return errors.Join(op.Checkpoint(), errRejected) }, "", nil},
		{"expired", (*operation.Op).Checkpoint, `update idem.records set expires_at = clock_timestamp()`, operation.ErrAnswerGone},
		{"used again", (*operation.Op).Checkpoint, `update idem.records set execution_id = gen_random_uuid()`, operation.ErrAnswerGone},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			d := define(func(op *operation.Op) error {
				_ = localStep(op, "before")
				return test.end(op)
			})
			id := s.startAll(d, "k")[0]
			s.work(t, d)
			res, err := operation.Wait(t.Context(), s.pool, id)
			if test.then != "" {
				must(t, err)
				s.exec(test.then)
				res, err = operation.Wait(t.Context(), s.pool, id)
			}
			if !errors.Is(err, test.want) || test.want == nil && (!res.Rejected || res.Status != 402) {
				t.Errorf("%+v, %v; want %v", res, err, test.want)
			}
			if did := s.did(); len(did) > 1 {
				t.Errorf("waiting has had an effect: %v", did)
			}
		})
	}
	s := newShop(t)
	want(t, operation.ErrUnknownOperation)(operation.Wait(t.Context(), s.pool, unknownID))
}

// The reason of a parked operation is stored unsealed. The last error is stored in full, and
// sealed.
func TestParkedReason_QuotesTheErrorUnlessSealed(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	const failed = `the undo of step "charge" has failed: `
	failure := fmt.Errorf("the bank says: %w", &refusal{Code: 51})
	long := fmt.Errorf("%s: %w", strings.Repeat("é", 3000), failure)
	for name, test := range map[string]struct {
		err  error
		opts []idem.Option
		want string
	}{
		"plain":  {failure, nil, failed + `the bank says: refused with 51`},
		"long":   {long, nil, failed + strings.Repeat("é", 200)},
		"sealed": {failure, []idem.Option{sealerOf(7)}, failed + `*fmt.wrapError, *operation_test.refusal`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := operation.Define("stuck", func(op *operation.Op, _ string) (idem.Response, error) {
				_, err := operation.Call(op, "charge", operation.Keyed(time.Hour), s.bank.charge,
					operation.UndoTx(func(pgx.Tx, string) error { return test.err }))
				return idem.Response{}, errors.Join(err, idem.Reject(declined))
			})
			_, err := d.Do(context.Background(), s.pool, scope, name, hashA, "", append(test.opts, idem.WithWait(0))...)
			var parked *operation.ParkedError
			if !errors.As(err, &parked) || parked.Reason != operation.ReasonUndoFailed || parked.ReasonText != test.want || !errors.Is(parked.Cause, failure) {
				t.Fatalf("%v, because of %v; want %q", err, parked, test.want)
			}
			status, err := operation.Show(t.Context(), s.pool, parked.OperationID, test.opts...)
			if err != nil || status.Reason != parked.Reason || status.ReasonText != test.want {
				t.Errorf("%+v, %v", status, err)
			}
			text := test.err.Error()
			if e := status.LastError; e == nil || e.Step != "charge" || e.Text != strings.ToValidUTF8(text[:min(len(text), 4096)], "") || e.At.IsZero() {
				t.Errorf("the last error is %.80v", e)
			}
			if plain, err := operation.Show(t.Context(), s.pool, parked.OperationID); err != nil || (plain.LastError.Text == "sealed") != (test.opts != nil) {
				t.Errorf("without a Sealer the last error is %.80v, %v", plain.LastError, err)
			}
		})
	}
}

func TestLogObserver_LogsStepsWithoutErrorTexts(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	var text bytes.Buffer // written to by one goroutine
	logger := slog.New(slog.NewJSONHandler(&text, &slog.HandlerOptions{Level: slog.LevelDebug}))
	attempts := 0
	d := operation.Define("checkout", func(op *operation.Op, _ string) (idem.Response, error) {
		_ = localStep(op, "reserve")
		_, err := operation.Call(op, "charge", operation.Keyed(time.Hour), func(context.Context, string) (int, error) {
			if attempts++; attempts == 1 {
				return 0, errTimeout
			}
			return 0, operation.Final(errDeclined)
		})
		if err != nil {
			return idem.Response{}, idem.Reject(declined)
		}
		return created, nil
	})
	want(t, nil)(d.Do(t.Context(), s.pool, scope, "k", hashA, "", idem.WithObserver(idem.LogObserver(logger))))
	var got []string
	for line := range strings.Lines(text.String()) {
		var l struct {
			Level, Msg, Name, Key, Step, Kind, Cause string
			OperationID                              string `json:"operation_id"`
			ExecutionID                              string `json:"execution_id"`
			Duration                                 *int64
		}
		must(t, json.Unmarshal([]byte(line), &l))
		got = append(got, fmt.Sprintf("%s %s: %s %s %s %s, %t %t", l.Level, l.Msg, l.Name, l.Kind, l.Step, l.Cause, len(l.OperationID+l.ExecutionID) == 36, l.Duration != nil))
	}
	want := []string{
		"DEBUG idem: step done: checkout tx reserve , true true",
		"WARN idem: step unknown: checkout call charge other, true true",
		"INFO idem: step failed: checkout call charge other, true true",
		"INFO idem: call rejected: checkout   , true true",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +logged):\n%s", diff)
	}
	for _, secret := range []string{errTimeout.Error(), errDeclined.Error(), scope} {
		if strings.Contains(text.String(), secret) {
			t.Errorf("%q is in the log", secret)
		}
	}
}

// The privileges in docs/operate.md suffice for a service with operations.
func TestPrivileges_OfTheDocsSuffice(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	role := fmt.Sprintf("idem_call_%08x", rand.Uint32())
	docs, err := os.ReadFile("../docs/operate.md")
	must(t, err)
	grants := []string{"create role " + role, "grant all on done to " + role}
	for line := range strings.Lines(string(docs)) {
		statement, _, _ := strings.Cut(line, ";")
		if strings.HasPrefix(line, "GRANT") && strings.Contains(line, " idem.") && strings.Contains(line, "TO idem_call") {
			grants = append(grants, strings.ReplaceAll(statement, "idem_call", role))
		}
	}
	grants = append(grants, "grant usage on schema idem to "+role)
	for _, sql := range grants {
		s.exec(sql)
	}
	t.Cleanup(func() { s.exec("drop owned by "+role+"; drop role "+role, pgx.QueryExecModeSimpleProtocol) })
	address := s.dsn + "&options=" + url.QueryEscape("-crole="+role)
	for name, behind := range map[string]*shop{
		"session": {t: t, bank: s.bank, pool: pgtest.Open(t, address)},
		"lease":   {t: t, bank: s.bank, pool: pgtest.Open(t, address, behindPooler)},
	} {
		d := behind.trip(func(op *operation.Op) (idem.Response, error) { return idem.Response{}, idem.Reject(declined) })
		must(t, pgx.BeginFunc(t.Context(), behind.pool, func(tx pgx.Tx) error {
			id, err := d.Start(t.Context(), tx, scope, name, hashA, "")
			return errors.Join(err, operation.Signal(t.Context(), tx, id, "unheard", 1))
		}))
		behind.work(t, d)
		wantRejected(t)(d.Do(t.Context(), behind.pool, scope, name, hashA, "", idem.WithWait(limit)))
	}
}
