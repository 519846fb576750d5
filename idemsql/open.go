package idemsql

import (
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// failed are the rows of a query that was not sent.
type failed struct{ err error }

func (f failed) Close()                                       {}
func (f failed) Err() error                                   { return f.err }
func (f failed) CommandTag() pgconn.CommandTag                { return pgconn.CommandTag{} }
func (f failed) FieldDescriptions() []pgconn.FieldDescription { return nil }
func (f failed) Next() bool                                   { return false }
func (f failed) Scan(...any) error                            { return f.err }
func (f failed) Values() ([]any, error)                       { return nil, f.err }
func (f failed) RawValues() [][]byte                          { return nil }
func (f failed) Conn() *pgx.Conn                              { return nil }
func (f failed) TypeMap() *pgtype.Map                         { return nil }

// open is what keeps the connection until it is closed.
type open struct{ give func() }

func (o *open) close() {
	if o.give != nil {
		o.give()
		o.give = nil
	}
}

type openRows struct {
	pgx.Rows
	open
}

func (r *openRows) Close() {
	r.Rows.Close()
	r.close()
}

func (r *openRows) Next() bool {
	if r.Rows.Next() {
		return true
	}
	r.close() // pgx closes rows behind the last one
	return false
}

func (r *openRows) Scan(dest ...any) error {
	err := r.Rows.Scan(dest...)
	if err != nil { // so does it then
		r.close()
	}
	return err
}

type openRow struct {
	pgx.Row
	open
}

func (r *openRow) Scan(dest ...any) error {
	defer r.close()
	return r.Row.Scan(dest...)
}

type openResults struct {
	pgx.BatchResults
	open
}

func (r *openResults) Close() error {
	defer r.close()
	return r.BatchResults.Close()
}
