package operation_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/operation"
)

// A service needs no more for its operations than docs/operate.md grants it.
func TestPrivileges_OfTheDocsSuffice(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	role := fmt.Sprintf("idem_call_%08x", rand.Uint32())
	docs, err := os.ReadFile("../docs/operate.md")
	if err != nil {
		t.Fatal(err)
	}
	grants := []string{"create role " + role, "grant all on done to " + role}
	for line := range strings.Lines(string(docs)) {
		statement, _, _ := strings.Cut(line, ";")
		if strings.HasPrefix(line, "GRANT") && strings.Contains(line, " idem.") && strings.Contains(line, "TO idem_call") {
			grants = append(grants, strings.ReplaceAll(statement, "idem_call", role))
		}
	}
	grants = append(grants, "grant usage on schema idem to "+role)
	for _, sql := range grants {
		if _, err := s.pool.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	t.Cleanup(func() {
		if _, err := s.pool.Exec(context.Background(), "drop owned by "+role+"; drop role "+role, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Error(err)
		}
	})
	address := s.dsn + "&options=" + url.QueryEscape("-crole="+role)
	for name, behind := range map[string]*shop{
		"session": {t: t, bank: s.bank, pool: pgtest.Open(t, address)},
		"lease":   {t: t, bank: s.bank, pool: pgtest.Open(t, address, behindPooler)},
	} {
		d := behind.trip(func(op *operation.Op) (idem.Response, error) { return idem.Response{}, idem.Reject(declined) })
		err := pgx.BeginFunc(t.Context(), behind.pool, func(tx pgx.Tx) error {
			id, err := d.Start(t.Context(), tx, scope, name, hashA, "")
			if err != nil {
				return err
			}
			return operation.Signal(t.Context(), tx, id, "unheard", 1)
		})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		behind.work(t, d)
		if res, err := d.Do(t.Context(), behind.pool, scope, name, hashA, "", idem.WithWait(limit)); err != nil || !res.Rejected {
			t.Errorf("%s: %+v, %v", name, res, err)
		}
	}
}
