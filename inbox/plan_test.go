package inbox_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/internal/store"
)

// However many messages are remembered: what is asked of some reads those alone.
func TestMessagesAreSoughtByTheirIndex(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	b.exec(`insert into idem.inbox (consumer, source, id, hash, state, since, expires_at)
		select 'billing', 'orders', i::text, sha256(i::text::bytea), 'handled', now(), now() from generate_series(1, 10000) i`)
	b.exec(`analyze idem.inbox`)
	for name, query := range map[string]struct {
		sql  string
		args []any
	}{
		"load":     {store.LoadMessagesSQL, []any{"{orders,orders}", "{1,2}", make([]byte, 64), "billing"}},
		"failing":  {store.FailingMessagesSQL, []any{"{orders,orders}", "{a,b}", "billing"}},
		"resume":   {store.ResumeMessagesSQL, []any{"1 hour", "{orders,orders}", "{1,2}", "billing"}},
		"announce": {store.AnnounceMessageSQL, []any{"billing", "orders", "1", make([]byte, 32), "1 hour", ""}},
		"withdraw": {store.WithdrawMessageSQL, []any{"billing", "orders", "1"}},
		"redrive":  {store.RedriveMessageSQL, []any{"billing", "orders", "1"}},
		"drop":     {store.DropMessageSQL, []any{"billing", "orders", "1"}},
		"redrives": {store.MessageRedrivesSQL, []any{"billing", 10, 100}},
		"release":  {store.ReleaseMessagesSQL, []any{"{orders,orders}", "{1,2}", "billing", "1 hour"}},
		"stats":    {store.InboxStatsSQL, nil},
	} {
		rows, _ := b.pool.Query(t.Context(), "explain "+query.sql, append([]any{pgx.QueryExecModeExec}, query.args...)...)
		plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if text := strings.Join(plan, "\n"); err != nil || strings.Contains(text, "Seq Scan on inbox") {
			t.Errorf("%s: %v\n%s", name, err, text)
		}
	}
}
