package ui

import (
	"context"
	"net/url"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/cmd/idem/internal/record"
)

// acts is the data of the page of audit entries, the latest first.
type acts struct {
	Acts []record.AuditEntry
	More bool
}

// readActs reads one act more than a page shows, to know whether there are more.
func readActs(ctx context.Context, tx pgx.Tx, asked url.Values) (any, error) {
	found, err := record.AuditEntries(ctx, tx, record.AuditFilter{Act: asked.Get("act"), Person: asked.Get("person"), Limit: 2*rows + 1})
	if len(found) > 2*rows {
		return acts{found[:2*rows], true}, err
	}
	return acts{Acts: found}, err
}
