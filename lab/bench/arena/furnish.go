package arena

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/lab/bench/contestant"
	"github.com/idem-go/idem/lab/schema"
)

// Furnish puts the schemas of the business and of idem into an empty database.
func Furnish(ctx context.Context, dsn string) error {
	if err := schema.UpAt(ctx, dsn); err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	_, err = conn.Exec(ctx, contestant.Schema, pgx.QueryExecModeSimpleProtocol)
	return err
}
