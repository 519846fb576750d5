package idem

import (
	"context"
	"encoding/hex"
	"errors"
	"regexp"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idem-go/idem/internal/db"
)

// statement is a query of internal/db together with the formats in which its parameters and results travel: text, and
// binary for what is large or what a text form would make depend on settings of the session.
type statement struct {
	sql     string
	params  []int16
	results []int16
}

const (
	textFormat   = pgx.TextFormatCode
	binaryFormat = pgx.BinaryFormatCode
)

var (
	claimStatement = statement{
		sql:    db.Claim,
		params: []int16{textFormat, textFormat, binaryFormat, textFormat, textFormat},
	}
	loadStatement = statement{
		sql:     db.Load,
		params:  []int16{binaryFormat, textFormat, textFormat, textFormat},
		results: []int16{textFormat, textFormat, textFormat, textFormat, textFormat, binaryFormat, binaryFormat, binaryFormat, binaryFormat, binaryFormat},
	}
	completeStatement = statement{
		sql:     db.Complete,
		params:  []int16{textFormat, textFormat, textFormat, binaryFormat, textFormat, textFormat, textFormat, textFormat, textFormat, textFormat},
		results: []int16{binaryFormat, binaryFormat, textFormat},
	}
	holdsStatement = statement{
		sql:    db.Holds,
		params: []int16{textFormat, textFormat, textFormat},
	}
)

// trip is a group of statements that are sent together and answered together: one round trip. It goes below pgx.Batch,
// which costs about as many allocations as everything else in a call, and keeps to the exec mode of the connection, so
// that what works behind the caller's connection pooler works here.
type trip struct {
	conn   *pgx.Conn
	mode   pgx.QueryExecMode
	batch  pgconn.Batch
	simple strings.Builder
	err    error

	results *pgconn.MultiResultReader
}

func newTrip(conn *pgx.Conn) *trip {
	return &trip{conn: conn, mode: execMode(conn)}
}

// The names under which a connection remembers what is dear to find out.
const (
	modeOfConn     = "github.com/idem-go/idem: exec mode"
	preparedOnConn = "github.com/idem-go/idem: prepared"
	txOnConn       = "github.com/idem-go/idem: tx"
)

func execMode(conn *pgx.Conn) pgx.QueryExecMode {
	data := conn.PgConn().CustomData()
	if mode, ok := data[modeOfConn].(pgx.QueryExecMode); ok {
		return mode
	}
	mode := conn.Config().DefaultQueryExecMode // copies a large struct
	data[modeOfConn] = mode
	return mode
}

// prepared are the statements that a connection knows. Preparing them through pgx each time would find them known as well,
// but show every one of them to the tracers of the caller.
type prepared struct{ begin, claim, load, complete, commit *pgconn.StatementDescription }

// preparedOn returns what the connection has prepared, nil if it has not.
func preparedOn(conn *pgx.Conn) *prepared {
	known, _ := conn.PgConn().CustomData()[preparedOnConn].(*prepared)
	return known
}

// The statements have names of their own: pgx would use one that is prepared under its text for the caller's, too.
var names = [...]string{"idem_begin", "idem_claim", "idem_load", "idem_complete", "idem_commit"}

// description returns what is known of a statement, nil if it is not one of those that are prepared.
func (p *prepared) description(sql string) *pgconn.StatementDescription {
	switch sql {
	case beginDefault:
		return p.begin
	case db.Claim:
		return p.claim
	case db.Load:
		return p.load
	case db.Complete:
		return p.complete
	case commitDefault:
		return p.commit
	}
	return nil
}

// The commands of a transaction without options.
const (
	beginDefault  = "begin"
	commitDefault = "commit"
)

// isCold reports whether prepare has something to send.
func isCold(conn *pgx.Conn) bool {
	return execMode(conn) == pgx.QueryExecModeCacheStatement && preparedOn(conn) == nil
}

// prepare makes the statements known to a connection that prepares statements at all. It costs round trips only once per
// connection, and never between fn and COMMIT.
func prepare(ctx context.Context, conn *pgx.Conn) error {
	if !isCold(conn) {
		return nil
	}
	var p prepared
	for _, s := range []struct {
		name, sql string
		known     **pgconn.StatementDescription
	}{
		{names[0], beginDefault, &p.begin}, {names[1], db.Claim, &p.claim}, {names[2], db.Load, &p.load},
		{names[3], db.Complete, &p.complete}, {names[4], commitDefault, &p.commit},
	} {
		description, err := conn.Prepare(ctx, s.name, s.sql)
		if err != nil {
			return err
		}
		*s.known = description
	}
	conn.PgConn().CustomData()[preparedOnConn] = &p
	return nil
}

// forget makes a connection prepare its statements again. They are stale if somebody has discarded them, or changed the
// table under them.
func forget(ctx context.Context, conn *pgx.Conn) error {
	delete(conn.PgConn().CustomData(), preparedOnConn)
	for _, name := range names {
		if err := conn.Deallocate(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// beginSQL returns the statement that begins a transaction with these options, which pgx only tells through a batch.
func beginSQL(txOptions pgx.TxOptions) string {
	if txOptions == (pgx.TxOptions{}) {
		return beginDefault
	}
	batch := &pgx.Batch{}
	batch.BeginTx(txOptions)
	return batch.QueuedQueries[0].SQL
}

// txOf returns the pgx.Tx through which fn uses whatever transaction the connection is in. pgx makes one only where it
// begins the transaction itself; a batch that begins one, and from which BEGIN was taken before it was sent, makes one and
// sends nothing. It is never committed or rolled back, so it serves the connection for all its life.
func txOf(conn *pgx.Conn) pgx.Tx {
	data := conn.PgConn().CustomData()
	if tx, ok := data[txOnConn].(pgx.Tx); ok {
		return tx
	}
	batch := &pgx.Batch{}
	batch.BeginTx(pgx.TxOptions{})
	batch.QueuedQueries = nil
	tx := conn.SendBatch(context.Background(), batch).Tx()
	data[txOnConn] = tx
	return tx
}

// command adds a statement without parameters and results.
func (t *trip) command(sql string) { t.query(statement{sql: sql}) }

// query adds a statement. The values are in the formats that the statement names; nil is NULL.
func (t *trip) query(s statement, values ...[]byte) {
	if t.mode == pgx.QueryExecModeSimpleProtocol {
		t.append(t.interpolate(s, values))
		return
	}
	if known := preparedOn(t.conn); known != nil {
		if description := known.description(s.sql); description != nil {
			t.batch.ExecStatement(description, values, s.params, s.results)
			return
		}
	}
	t.batch.ExecParams(s.sql, values, nil, s.params, s.results)
}

func (t *trip) append(sql string) {
	if t.simple.Len() > 0 {
		t.simple.WriteString("\n;")
	}
	t.simple.WriteString(sql)
}

var placeholder = regexp.MustCompile(`\$\d+`)

// interpolate writes the values into the statement as literals. Every parameter is cast in the SQL, so a literal is of the
// type that a parameter would be of.
func (t *trip) interpolate(s statement, values [][]byte) string {
	return placeholder.ReplaceAllStringFunc(s.sql, func(name string) string {
		n, _ := strconv.Atoi(name[1:])
		value := values[n-1]
		if value == nil {
			return "NULL"
		}
		if s.params[n-1] == binaryFormat {
			return `'\x` + hex.EncodeToString(value) + `'`
		}
		// EscapeString refuses a connection on which the quotes alone would not contain the string.
		escaped, err := t.conn.PgConn().EscapeString(string(value))
		if err != nil {
			t.err = err
		}
		return "'" + escaped + "'"
	})
}

// send puts the trip on the wire. The answers are read with next and skip, in order; end must follow.
func (t *trip) send(ctx context.Context) {
	switch {
	case t.err != nil:
	case t.mode == pgx.QueryExecModeSimpleProtocol:
		t.results = t.conn.PgConn().Exec(ctx, t.simple.String())
	default:
		t.results = t.conn.PgConn().ExecBatch(ctx, &t.batch)
	}
}

// next returns the answer to the next statement, nil if that or an earlier one failed.
func (t *trip) next() *pgconn.ResultReader {
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

// skip reads the answer to the next statement and returns its command tag.
func (t *trip) skip() pgconn.CommandTag {
	answer := t.next()
	if answer == nil {
		return pgconn.CommandTag{}
	}
	tag, err := answer.Close()
	if err != nil {
		t.err = err
	}
	return tag
}

// end reads what is left and returns the first error of the trip.
func (t *trip) end() error {
	if t.results == nil {
		return t.err
	}
	if err := t.results.Close(); t.err == nil {
		t.err = err
	}
	return t.err
}
