package inbox_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/internal/db"
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
		"load":     {db.LoadMessagesSQL, []any{"{orders,orders}", "{1,2}", make([]byte, 64), "billing"}},
		"failing":  {db.FailingMessagesSQL, []any{"{orders,orders}", "{a,b}", "billing"}},
		"resume":   {db.ResumeMessagesSQL, []any{"1 hour", "{orders,orders}", "{1,2}", "billing"}},
		"announce": {db.AnnounceMessageSQL, []any{"billing", "orders", "1", make([]byte, 32), "1 hour", ""}},
		"withdraw": {db.WithdrawMessageSQL, []any{"billing", "orders", "1"}},
		"redrive":  {db.RedriveMessageSQL, []any{"billing", "orders", "1"}},
		"drop":     {db.DropMessageSQL, []any{"billing", "orders", "1"}},
		"redrives": {db.MessageRedrivesSQL, []any{"billing", 10, 100}},
		"release":  {db.ReleaseMessagesSQL, []any{"{orders,orders}", "{1,2}", "billing", "1 hour"}},
		"stats":    {db.InboxStatsSQL, nil},
	} {
		rows, _ := b.pool.Query(t.Context(), "explain "+query.sql, append([]any{pgx.QueryExecModeExec}, query.args...)...)
		plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if text := strings.Join(plan, "\n"); err != nil || strings.Contains(text, "Seq Scan on inbox") {
			t.Errorf("%s: %v\n%s", name, err, text)
		}
	}
}
