package fleet

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// copyRows copies the rows of a part that fulfil the condition, as the transaction of from sees them, into that of to. A row that is there
// already is overwritten.
func copyRows(ctx context.Context, from, to pgx.Tx, p *part, condition string) (rows int64, err error) {
	if err := stream(ctx, from, to, p.query(p.columns, condition), "SELECT "+strings.Join(p.columns, ", ")+" FROM "+p.name); err != nil {
		return 0, fmt.Errorf("fleet: copy %s: %w", p.name, err)
	}
	columns := slices.DeleteFunc(slices.Clone(p.columns), func(c string) bool { return slices.Contains(p.numbers, c) })
	list := strings.Join(columns, ", ")
	into := "INSERT INTO " + p.name + " (" + list + ") SELECT " + list + " FROM arriving ORDER BY " + strings.Join(p.keys, ", ")
	if !p.late {
		into += " ON CONFLICT (" + strings.Join(p.keys, ", ") + ") DO " + overwrite(columns, p.keys)
	}
	tag, err := to.Exec(ctx, into)
	if err != nil {
		return 0, fmt.Errorf("fleet: copy %s: %w", p.name, err)
	}
	return tag.RowsAffected(), nil
}

func overwrite(columns, keys []string) string {
	var set []string
	for _, c := range columns {
		if !slices.Contains(keys, c) {
			set = append(set, c+" = EXCLUDED."+c)
		}
	}
	if len(set) == 0 {
		return "NOTHING"
	}
	return "UPDATE SET " + strings.Join(set, ", ")
}

// stream makes a temporary table arriving, of the columns that shape selects, and fills it with what query finds in the other cluster.
func stream(ctx context.Context, from, to pgx.Tx, query, shape string) error {
	if _, err := to.Exec(ctx, "DROP TABLE IF EXISTS pg_temp.arriving"); err != nil {
		return err
	}
	if _, err := to.Exec(ctx, "CREATE TEMPORARY TABLE arriving ON COMMIT DROP AS "+shape+" WITH NO DATA"); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	reader, writer := io.Pipe()
	sent := make(chan error, 1)
	go func() {
		_, err := from.Conn().PgConn().CopyTo(ctx, writer, "COPY ("+query+") TO STDOUT (FORMAT binary)")
		writer.CloseWithError(err)
		sent <- err
	}()
	_, err := to.Conn().PgConn().CopyFrom(ctx, reader, "COPY pg_temp.arriving FROM STDIN (FORMAT binary)")
	reader.CloseWithError(err) // so that the other side ends
	if failed := <-sent; failed != nil {
		return failed
	}
	return err
}
