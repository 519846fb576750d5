package roundtrip

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// planAge is the maximum age of the plan of a Statement whose field Replan is set. A plan that is
// older is renewed, usually when its connection is returned to the pool.
const planAge = 2 * time.Second

// The keys of data in the custom data of a connection.
const (
	modeOfConn     = "github.com/idem-go/idem: exec mode"
	preparedOnConn = "github.com/idem-go/idem: prepared"
)

// prepared is a statement that a connection has prepared.
type prepared struct {
	description *pgconn.StatementDescription
	planned     time.Time
}

type preparedSet map[*Statement]*prepared

// preparedOn returns the statements that this package has prepared on a connection. The result may
// be nil.
func preparedOn(conn *pgx.Conn) preparedSet {
	known, _ := conn.PgConn().CustomData()[preparedOnConn].(preparedSet)
	return known
}

func execMode(conn *pgx.Conn) pgx.QueryExecMode {
	data := conn.PgConn().CustomData()
	if mode, ok := data[modeOfConn].(pgx.QueryExecMode); ok {
		return mode
	}
	mode := conn.Config().DefaultQueryExecMode // Config copies a large struct, so the mode is stored below
	data[modeOfConn] = mode
	return mode
}

// MustPrepare reports whether Prepare would send something.
func MustPrepare(conn *pgx.Conn, statements []*Statement) bool {
	return len(unprepared(conn, statements)) > 0
}

// unprepared returns the statements that the connection has to prepare.
func unprepared(conn *pgx.Conn, statements []*Statement) (cold []*Statement) {
	if execMode(conn) != pgx.QueryExecModeCacheStatement {
		return nil
	}
	known := preparedOn(conn)
	for _, s := range statements {
		if known[s] == nil {
			cold = append(cold, s)
		}
	}
	return cold
}

// Prepare prepares the statements that the connection has not prepared yet, in one round trip. It
// sends the commands in ahead first. If the statements are prepared, or if the exec mode of the
// connection does not use prepared statements, Prepare sends nothing.
func Prepare(ctx context.Context, conn *pgx.Conn, statements []*Statement, ahead ...*Ahead) error {
	cold := unprepared(conn, statements)
	if len(cold) == 0 {
		return nil
	}
	return replace(ctx, conn, ahead, nil, cold)
}

// preparedForUpdate is preparedOn, but never returns nil, so that the caller can add statements.
func preparedForUpdate(conn *pgx.Conn) preparedSet {
	known := preparedOn(conn)
	if known == nil {
		known = preparedSet{}
		conn.PgConn().CustomData()[preparedOnConn] = known
	}
	return known
}

// text returns the SQL to prepare. For a Statement with Replan, it adds a comment that changes
// every planAge. PgBouncer prepares the same text only once, even if clients deallocate the
// statement, so a new plan needs another text. At any moment all clients use the same text, because
// different texts would evict each other from PgBouncer's cache.
func (s *Statement) text() string {
	if !s.Replan {
		return s.SQL
	}
	return s.SQL + "\n-- " + strconv.FormatInt(time.Now().UnixNano()/int64(planAge), 36)
}

// MustReplan reports whether Replan would send something.
func MustReplan(conn *pgx.Conn) bool { return len(outdated(conn)) > 0 }

// outdated returns the prepared statements with Replan whose plans are too old.
func outdated(conn *pgx.Conn) (due []*Statement) {
	for s, p := range preparedOn(conn) {
		if s.Replan && time.Since(p.planned) > planAge {
			due = append(due, s)
		}
	}
	return due
}

// Replan deallocates the statements whose plans are too old, and prepares them again. It takes one
// round trip, and sends the commands in ahead first. A pooler may rename prepared statements and
// reuse them by their text. So Replan sends protocol messages instead of SQL, and changes the text
// of the statements.
func Replan(ctx context.Context, conn *pgx.Conn, ahead ...*Ahead) error {
	due := outdated(conn)
	return replace(ctx, conn, ahead, due, due)
}

// Renew prepares statements again on a connection whose prepared statements no longer work, because
// the program has deallocated them or has altered a table. In the same round trip it first
// deallocates all statements that this package has prepared on the connection.
func Renew(ctx context.Context, conn *pgx.Conn, statements []*Statement) error {
	if execMode(conn) != pgx.QueryExecModeCacheStatement {
		return nil
	}
	var known []*Statement
	for s := range preparedOn(conn) {
		known = append(known, s)
	}
	return replace(ctx, conn, nil, known, statements)
}

// Ahead is a command that is sent before statements are prepared.
type Ahead struct {
	SQL  string
	Done bool
}

func (a *Ahead) read(pipeline *pgconn.Pipeline) error {
	result, err := pipeline.GetResults()
	if answer, ok := result.(*pgconn.ResultReader); err == nil && ok {
		_, err = answer.Close()
	}
	a.Done = err == nil
	return err
}

// replace executes the commands in ahead, deallocates the statements in old and prepares the
// statements in fresh. After an error the server skips the rest. The preparedSet of the connection
// is updated after each answer, so that it matches the server even after an error.
func replace(ctx context.Context, conn *pgx.Conn, ahead []*Ahead, old, fresh []*Statement) error {
	pipeline := conn.PgConn().StartPipeline(ctx)
	for _, a := range ahead {
		pipeline.SendQueryParams(a.SQL, nil, nil, nil, nil)
	}
	for _, s := range old {
		pipeline.SendDeallocate(s.Name)
	}
	for _, s := range fresh {
		pipeline.SendPrepare(s.Name, s.text(), nil)
	}
	err := pipeline.Sync()
	if err == nil {
		err = readReplaced(pipeline, preparedForUpdate(conn), ahead, old, fresh)
	}
	if closed := pipeline.Close(); err == nil {
		err = closed
	}
	return err
}

// readReplaced reads the answers to the messages that replace has sent.
func readReplaced(pipeline *pgconn.Pipeline, known preparedSet, ahead []*Ahead, old, fresh []*Statement) error {
	for _, a := range ahead {
		if err := a.read(pipeline); err != nil {
			return err
		}
	}
	for _, s := range old {
		if _, err := pipeline.GetResults(); err != nil {
			return err
		}
		delete(known, s)
	}
	for _, s := range fresh {
		if err := readPrepared(known, s, pipeline); err != nil {
			return err
		}
	}
	return nil
}

// readPrepared reads the answer to the preparation of s and adds s to known.
func readPrepared(known preparedSet, s *Statement, pipeline *pgconn.Pipeline) error {
	result, err := pipeline.GetResults()
	if err != nil {
		return explainDuplicate(s.Name, err)
	}
	description, ok := result.(*pgconn.StatementDescription)
	if !ok {
		return fmt.Errorf("idem: %T in answer to a statement that was to be prepared", result)
	}
	description.Name = s.Name
	known[s] = &prepared{description: description, planned: time.Now()}
	return nil
}

// explainDuplicate adds an explanation to err if the session already has a prepared statement with
// this name.
func explainDuplicate(name string, err error) error {
	const duplicatePreparedStatement = "42P05"
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); !ok || pgErr.Code != duplicatePreparedStatement {
		return err
	}
	return fmt.Errorf("idem: the session has another prepared statement named %s: either the application prepares one under this name, "+
		"which is idem's, or a pooler gives one session to several clients and does not keep their statements apart "+
		"(then set default_query_exec_mode=exec): %w", name, err)
}
