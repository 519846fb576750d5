package shop

import (
	"context"
	_ "embed"

	"github.com/idem-go/idem/example/fleet"
)

//go:embed fill.sql
var fill string

// Fill gives a tenant that many keys, each with its order and the message that was handled of it; a tenth are of operations.
func Fill(ctx context.Context, home fleet.Cluster, tenant string, keys int) error {
	_, err := home.Pool.Exec(ctx, fill, tenant, keys)
	return err
}
