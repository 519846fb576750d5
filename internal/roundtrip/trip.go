// Package roundtrip sends several statements together and reads their answers together, in one
// round trip.
//
// It uses pgconn directly, because pgx.Batch would double the allocations of a call. It follows the
// DefaultQueryExecMode of the connection, so it works behind every pooler behind which the
// application works. The statements and their answers have the same meaning under all settings of
// the session.
package roundtrip

import (
	"context"
	"errors"
	"math"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Trip is one round trip of a group of statements on one connection. Add the statements, call Send,
// read the answers in the same order, and call End. A Trip cannot be used again.
type Trip struct {
	conn    *pgx.Conn
	mode    pgx.QueryExecMode
	foreign bool // the session does not read text parameters as UTF-8
	known   preparedSet
	batch   pgconn.Batch
	values  Values
	simple  strings.Builder
	results *pgconn.MultiResultReader
	row     Row
	err     error
}

// On begins a trip on conn.
func On(conn *pgx.Conn) *Trip {
	t := &Trip{conn: conn, mode: execMode(conn)}
	if t.mode == pgx.QueryExecModeCacheStatement {
		t.known = preparedOn(conn)
	}
	if encoding := conn.PgConn().ParameterStatus("client_encoding"); encoding != "UTF8" && encoding != "SQL_ASCII" {
		t.foreign = true
	}
	return t
}

// Add adds a statement. The values are in the order of its parameters. A nil value is NULL.
func (t *Trip) Add(s *Statement, values ...[]byte) {
	if t.mode == pgx.QueryExecModeSimpleProtocol {
		t.addSimple(interpolate(s.simple, s.Params, values))
		return
	}
	if t.foreign && len(values) > 0 {
		t.batch.ExecParams(interpolate(s.SQL, s.Params, values), nil, nil, nil, s.Results)
		return
	}
	p := t.known[s]
	if p == nil {
		t.batch.ExecParams(s.SQL, values, nil, s.formats, s.Results)
		return
	}
	t.batch.ExecStatement(p.description, values, s.formats, s.Results)
}

// Values returns an empty list for the values of one statement. The next call of Values reuses its
// memory.
func (t *Trip) Values() *Values {
	t.values.reset()
	return &t.values
}

// Exec adds a command without parameters.
func (t *Trip) Exec(sql string) {
	if t.mode == pgx.QueryExecModeSimpleProtocol {
		t.addSimple(sql)
		return
	}
	t.batch.ExecParams(sql, nil, nil, nil, nil)
}

func (t *Trip) addSimple(sql string) {
	if t.simple.Len() > 0 {
		t.simple.WriteString("\n;")
	}
	t.simple.WriteString(sql)
}

func (t *Trip) Send(ctx context.Context) {
	if t.mode == pgx.QueryExecModeSimpleProtocol {
		t.results = t.conn.PgConn().Exec(ctx, t.simple.String())
		return
	}
	t.results = t.conn.PgConn().ExecBatch(ctx, &t.batch)
}

// next returns the answer to the next statement. It returns nil if the trip already has an error,
// or if there is no answer.
func (t *Trip) next() *pgconn.ResultReader {
	if t.err != nil {
		return nil
	}
	if !t.results.NextResult() {
		t.err = t.results.Close()
		if t.err == nil {
			t.err = errors.New("idem: the server did not answer every statement")
		}
		return nil
	}
	return t.results.ResultReader()
}

func (t *Trip) close(answer *pgconn.ResultReader) pgconn.CommandTag {
	tag, err := answer.Close()
	if err != nil && t.err == nil {
		t.err = err
	}
	return tag
}

// Skip reads the answer to the next statement and returns its command tag.
func (t *Trip) Skip() pgconn.CommandTag {
	if answer := t.next(); answer != nil {
		return t.close(answer)
	}
	return pgconn.CommandTag{}
}

// Row reads the answer to the next statement, which has at most one row. It calls scan to read the
// row. It reports whether there was a row.
func (t *Trip) Row(scan func(*Row)) bool { return t.read(scan, 1) > 0 && t.err == nil }

// Rows reads the answer to the next statement, which may have many rows. It calls scan to read each
// row.
func (t *Trip) Rows(scan func(*Row)) { t.read(scan, math.MaxInt) }

// read reads up to limit rows of the answer to the next statement, and returns how many rows it has
// read.
func (t *Trip) read(scan func(*Row), limit int) (n int) {
	answer := t.next()
	if answer == nil {
		return 0
	}
	for ; n < limit && t.err == nil && answer.NextRow(); n++ {
		t.row = Row{values: answer.Values(), fields: answer.FieldDescriptions()}
		scan(&t.row)
		t.err = t.row.err
	}
	t.close(answer)
	return n
}

// Err returns the first error so far.
func (t *Trip) Err() error { return t.err }

// End reads the remaining answers and returns the first error of the trip.
func (t *Trip) End() error {
	if err := t.results.Close(); t.err == nil {
		t.err = err
	}
	return t.err
}
