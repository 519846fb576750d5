package operation_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/operation"
)

// acts returns the audit, one act a line.
func (s *shop) acts() string {
	s.t.Helper()
	return s.text(`select coalesce(string_agg(concat_ws('|', act, outcome, role = session_user, person, reason, step, scope, key), e'\n' order by at), '') from idem.audit`)
}

// parkedAtCall parks an operation whose key is abridged in the audit, and returns its id.
func parkedAtCall(t *testing.T, s *shop) string {
	t.Helper()
	calls, fail := 0, errTimeout
	if _, err := unsure(s, &calls, &fail).Do(t.Context(), s.pool, scope, "a-key-of-some-length", hashA, 0); !errors.Is(err, operation.ErrParked) {
		t.Fatal(err)
	}
	return s.text(`select id::text from idem.operations`)
}

func TestAudit_OneRowForEachAct(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, want string
		do         func(ctx context.Context, s *shop, id string) error
	}{
		{"retry", "retry|running", func(ctx context.Context, s *shop, id string) error { return operation.Retry(ctx, s.pool, id) }},
		{"cancel", "cancel|to be undone", func(ctx context.Context, s *shop, id string) error { return operation.Cancel(ctx, s.pool, id) }},
		{"cancel without calling", "cancel|to be undone, without calling", func(ctx context.Context, s *shop, id string) error {
			return operation.Cancel(ctx, s.pool, id, operation.WithoutCalling())
		}},
		{"cancel without code", "cancel|to be undone, without code", func(ctx context.Context, s *shop, id string) error {
			return operation.Cancel(ctx, s.pool, id, operation.WithoutCode())
		}},
		{"happened", "resolve|happened", func(ctx context.Context, s *shop, id string) error {
			return operation.Resolve(ctx, s.pool, id, operation.Happened("by a person"))
		}},
		{"not happened", "resolve|not happened", func(ctx context.Context, s *shop, id string) error {
			return operation.Resolve(ctx, s.pool, id, operation.NotHappened)
		}},
		{"refused", "resolve|refused", func(ctx context.Context, s *shop, id string) error {
			return operation.Resolve(ctx, s.pool, id, operation.Refused(errors.New("no")))
		}},
		{"retry all", "retry|running", func(ctx context.Context, s *shop, _ string) error {
			_, err := operation.RetryAll(ctx, s.pool, operation.Filter{Name: "unsure"})
			return err
		}},
		{"cancel all", "cancel|to be undone", func(ctx context.Context, s *shop, _ string) error {
			_, err := operation.CancelAll(ctx, s.pool, operation.Filter{Name: "unsure", State: "parked"})
			return err
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			id := parkedAtCall(t, s)
			ctx := idem.WithReason(idem.WithPerson(t.Context(), "ann\x00@example.com"), strings.Repeat("é", 501))
			if err := test.do(ctx, s, id); err != nil {
				t.Fatal(err)
			}
			want := test.want + "|t|ann\uFFFD@example.com|" + strings.Repeat("é", 500) + "|call|" + scope + `|a-ke…(20)`
			if diff := cmp.Diff(want, s.acts()); diff != "" {
				t.Error(diff)
			}
			if at := s.text(`select (operation_id = $1)::text from idem.audit`, id); at != "true" {
				t.Error("the row is of another operation")
			}
		})
	}
}

func TestAudit_NoRowForARefusedAct(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	id := parkedAtCall(t, s)
	status, err := operation.Show(t.Context(), s.pool, id)
	if err != nil {
		t.Fatal(err)
	}
	status.Epoch++
	for name, err := range map[string]error{
		"another epoch":         operation.Resolve(t.Context(), s.pool, id, operation.NotHappened.As(status)),
		"another step":          operation.Resolve(t.Context(), s.pool, id, operation.NotHappened.Of("elsewhere")),
		"no such operation":     operation.Retry(t.Context(), s.pool, "11111111-2222-4333-8444-555555555555"),
		"a value without codec": operation.Resolve(t.Context(), s.pool, id, operation.Happened(make(chan int))),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if got := s.acts(); got != "" {
		t.Errorf("recorded: %s", got)
	}
	if state := s.text(`select state from idem.operations`); state != "parked" {
		t.Errorf("the operation is %s", state)
	}
}

func TestAudit_ActNeedsInsertPrivilege(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	id := parkedAtCall(t, s)
	role := fmt.Sprintf("idem_mute_%08x", rand.Uint32())
	for _, sql := range []string{
		"create role " + role, "grant usage on schema idem to " + role,
		"grant select, insert, update on idem.operations, idem.steps, idem.signals to " + role,
	} {
		if _, err := s.pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if _, err := s.pool.Exec(context.Background(), "drop owned by "+role+"; drop role "+role, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Error(err)
		}
	})
	mute := pgtest.Open(t, s.dsn+"&options="+url.QueryEscape("-crole="+role))
	err := operation.Cancel(t.Context(), mute, id)
	if err == nil || !strings.Contains(err.Error(), "INSERT on idem.audit") {
		t.Errorf("%v", err)
	}
	if state := s.text(`select state || canceled from idem.operations`); state != "parkedfalse" {
		t.Errorf("the operation is %s", state)
	}
}
