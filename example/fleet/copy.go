package fleet

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// copyRows copies the rows that p describes and returns their number. It reads the rows in the
// transaction from and writes them in the transaction to. It overwrites existing rows, unless
// p.late is set.
func copyRows(ctx context.Context, from, to pgx.Tx, p *part) (rows int64, err error) {
	if err := stream(ctx, from, to, p.query(p.columns, ""), "SELECT "+strings.Join(p.columns, ", ")+" FROM "+p.name); err != nil {
		return 0, fmt.Errorf("fleet: copy %s: %w", p.name, err)
	}
	return insert(ctx, to, p)
}

// insert copies the rows of the temporary table named arriving into the table of p. It returns a
// DifferenceError if it could not insert or update all of them.
func insert(ctx context.Context, to pgx.Tx, p *part) (rows int64, err error) {
	columns := slices.DeleteFunc(slices.Clone(p.columns), func(c string) bool { return slices.Contains(p.numbers, c) })
	list := strings.Join(columns, ", ")
	arrived := " FROM pg_temp.arriving WHERE " + p.keys[0] + " IS NOT NULL"
	into := "INSERT INTO " + p.name + " (" + list + ") SELECT " + list + arrived + " ORDER BY " + strings.Join(p.keys, ", ")
	if !p.late {
		into += " ON CONFLICT (" + strings.Join(p.keys, ", ") + ") DO UPDATE SET " + overwrite(columns, p.keys)
	}
	var want int64
	err = to.QueryRow(ctx, "WITH inserted AS ("+into+" RETURNING 1) SELECT (SELECT count(*) FROM inserted), count(*)"+arrived).Scan(&rows, &want)
	if err != nil {
		return 0, fmt.Errorf("fleet: copy %s: %w", p.name, err)
	}
	if rows != want {
		return 0, &DifferenceError{p.name}
	}
	return rows, nil
}

// overwrite returns the SET clause of an upsert. If all columns are key columns, the clause sets
// the first column to its own value, because the clause must not be empty.
func overwrite(columns, keys []string) string {
	var set []string
	for _, c := range columns {
		if !slices.Contains(keys, c) {
			set = append(set, c+" = EXCLUDED."+c)
		}
	}
	if len(set) == 0 {
		set = append(set, keys[0]+" = EXCLUDED."+keys[0])
	}
	return strings.Join(set, ", ")
}

// stream creates the temporary table named arriving in the new home, with the columns of the query
// shape, and fills it with the result of query from the old home. COPY streams the rows in binary
// format.
func stream(ctx context.Context, from, to pgx.Tx, query, shape string) error {
	if _, err := to.Exec(ctx, "DROP TABLE IF EXISTS pg_temp.arriving; CREATE TEMPORARY TABLE arriving ON COMMIT DROP AS "+shape+" WITH NO DATA",
		pgx.QueryExecModeSimpleProtocol); err != nil {
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
	reader.CloseWithError(err) // makes the COPY in the old home end
	if failed := <-sent; failed != nil {
		return failed
	}
	return err
}
