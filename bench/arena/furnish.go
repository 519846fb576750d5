package arena

import (
	"context"
	"fmt"
	"io/fs"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/bench/contestant"
	"github.com/idem-go/idem/migrations"
)

// Furnish puts the schemas of the business and of idem into an empty database.
func Furnish(ctx context.Context, dsn string) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	sql, err := up()
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, sql+contestant.Schema, pgx.QueryExecModeSimpleProtocol)
	return err
}

// up is what the migrations of idem do in that direction, as plain SQL.
func up() (string, error) {
	names, err := fs.Glob(migrations.FS, "*.sql")
	if err != nil {
		return "", err
	}
	var sql strings.Builder
	for _, name := range names {
		text, err := fs.ReadFile(migrations.FS, name)
		if err != nil {
			return "", err
		}
		_, rest, ok := strings.Cut(string(text), "-- +goose Up")
		if !ok {
			return "", fmt.Errorf("%s: there is no way up", name)
		}
		statements, _, _ := strings.Cut(rest, "-- +goose Down")
		sql.WriteString(statements)
	}
	return sql.String(), nil
}
