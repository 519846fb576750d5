package shop

import (
	"context"
	_ "embed"

	"github.com/idem-go/idem/example/fleet"
)

//go:embed fill.sql
var fill string

// Fill gives a tenant a history of that many keys, each with an order and a handled message. A
// tenth of the keys belong to operations.
func Fill(ctx context.Context, home fleet.Cluster, tenant string, keys int) error {
	_, err := home.Pool.Exec(ctx, fill, tenant, keys)
	return err
}
