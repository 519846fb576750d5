package inbox_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/lab/pgtest"
)

func TestConsumer_NeedsTheDocumentedPrivileges(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	b := newFixtureOn(t, pgtest.Open(t, dsn))
	role := fmt.Sprintf("idem_call_%08x", rand.Uint32())
	docs, err := os.ReadFile("../docs/operate.md")
	if err != nil {
		t.Fatal(err)
	}
	b.exec("create role " + role)
	t.Cleanup(func() {
		if _, err := b.pool.Exec(context.Background(), "drop owned by "+role+"; drop role "+role, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Error(err)
		}
	})
	b.exec("grant all on books to " + role)
	b.exec("grant usage on schema idem to " + role)
	for line := range strings.Lines(string(docs)) {
		statement, _, _ := strings.Cut(line, ";")
		if strings.HasPrefix(line, "GRANT") && strings.Contains(line, " idem.") && strings.Contains(line, "TO idem_call") {
			b.exec(strings.ReplaceAll(statement, "idem_call", role))
		}
	}
	granted := &fixture{t: t, pool: pgtest.Open(t, dsn+"&options="+url.QueryEscape("-crole="+role))}
	ms := messages("m", 4)
	for i := range ms {
		ms[i].Key, ms[i].Deliveries = "a", 2
	}
	opts := []inbox.Option{inbox.WithMaxAttempts(2), inbox.WithOrder()}
	granted.wantStates("DRRR", granted.batch(ms, granted.failing("m-0001"), opts...))
	b.due()
	granted.wantStates("dXDD", granted.batch(ms, granted.failing("m-0001"), opts...))
	if err := inbox.Redrive(t.Context(), granted.pool, ref("m-0001")); err != nil {
		t.Error(err)
	}
	if _, outcomes, err := inbox.HandleRedrives(t.Context(), granted.pool, consumer, 10, granted.record, opts...); err != nil {
		t.Error(err)
	} else {
		granted.wantStates("D", outcomes)
	}
	if _, err := inbox.ReadStats(t.Context(), granted.pool); err != nil {
		t.Error(err)
	}
	commits := func(tx pgx.Tx, m inbox.Message) error { _, err := tx.Exec(t.Context(), "commit"); return err }
	granted.wantStates("X", granted.batch(messages("c", 1), commits, opts...))
}
