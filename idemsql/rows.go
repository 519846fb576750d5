package idemsql

import "github.com/jackc/pgx/v5"

// hold keeps the connection pinned until done is called. The types below embed hold and call done
// when they are closed.
type hold struct{ release func() }

func (h *hold) done() {
	if h.release != nil {
		h.release()
		h.release = nil
	}
}

type heldRows struct {
	pgx.Rows
	hold
}

func (r *heldRows) Close() {
	r.Rows.Close()
	r.done()
}

func (r *heldRows) Next() bool {
	if r.Rows.Next() {
		return true
	}
	r.done() // pgx closes rows after the last row
	return false
}

func (r *heldRows) Scan(dest ...any) error {
	err := r.Rows.Scan(dest...)
	if err != nil { // pgx closes rows after an error of Scan
		r.done()
	}
	return err
}

type heldRow struct {
	pgx.Row
	hold
}

func (r *heldRow) Scan(dest ...any) error {
	defer r.done()
	return r.Row.Scan(dest...)
}

type heldResults struct {
	pgx.BatchResults
	hold
}

func (r *heldResults) Close() error {
	defer r.done()
	return r.BatchResults.Close()
}
