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

// planAge is the maximum age of the plan of a Statement with Replan when its connection is given
// back.
const planAge = 2 * time.Second

// The names under which a connection keeps data that is too costly to compute each time.
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

// preparedOn returns the prepared statements of a connection, which may be nil.
func preparedOn(conn *pgx.Conn) preparedSet {
	known, _ := conn.PgConn().CustomData()[preparedOnConn].(preparedSet)
	return known
}

func execMode(conn *pgx.Conn) pgx.QueryExecMode {
	data := conn.PgConn().CustomData()
	if mode, ok := data[modeOfConn].(pgx.QueryExecMode); ok {
		return mode
	}
	mode := conn.Config().DefaultQueryExecMode // copies a large struct
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

// Prepare prepares statements on a connection whose exec mode prepares statements. It takes one
// round trip, once per connection, and sends the commands in ahead first. If there is nothing to
// prepare, it sends nothing.
func Prepare(ctx context.Context, conn *pgx.Conn, statements []*Statement, ahead ...*Ahead) error {
	cold := unprepared(conn, statements)
	if len(cold) == 0 {
		return nil
	}
	return replace(ctx, conn, ahead, nil, cold)
}

// preparedForUpdate returns the prepared statements of a connection, never nil.
func preparedForUpdate(conn *pgx.Conn) preparedSet {
	known := preparedOn(conn)
	if known == nil {
		known = preparedSet{}
		conn.PgConn().CustomData()[preparedOnConn] = known
	}
	return known
}

// text returns the SQL to prepare. With Replan it has a comment that changes every planAge.
// PgBouncer prepares a text once for all its clients, even if they deallocate it, so a new plan
// needs another text. The text is the same for all clients, which would otherwise evict each
// other's statements.
func (s *Statement) text() string {
	if !s.Replan {
		return s.SQL
	}
	return s.SQL + "\n-- " + strconv.FormatInt(time.Now().UnixNano()/int64(planAge), 36)
}

// MustReplan reports whether Replan would send something.
func MustReplan(conn *pgx.Conn) bool { return len(outdated(conn)) > 0 }

// outdated returns the statements whose plans are too old.
func outdated(conn *pgx.Conn) (due []*Statement) {
	for s, p := range preparedOn(conn) {
		if s.Replan && time.Since(p.planned) > planAge {
			due = append(due, s)
		}
	}
	return due
}

// Replan deallocates the statements whose plans are too old, and prepares them again. It takes one
// round trip, and sends the commands in ahead first. A pooler may give statements its own names and
// reuse them by their text. So Replan sends protocol messages instead of SQL, and a text that
// differs from the old one.
func Replan(ctx context.Context, conn *pgx.Conn, ahead ...*Ahead) error {
	due := outdated(conn)
	return replace(ctx, conn, ahead, due, due)
}

// Renew prepares statements on a connection that may have lost its prepared statements: the program
// has deallocated them, or has altered a table. It deallocates all statements that were prepared on
// the connection. It takes one round trip.
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

// replace sends the commands ahead, deallocates old and prepares fresh. After an error the rest is
// not done. The prepared statements that the connection records always match those of the server.
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

// readReplaced reads the answers to replace.
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

// readPrepared reads the answer to the preparation of s and records s.
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

// explainDuplicate adds to err what to do if the session has a statement of that name already.
func explainDuplicate(name string, err error) error {
	const duplicatePreparedStatement = "42P05"
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); !ok || pgErr.Code != duplicatePreparedStatement {
		return err
	}
	return fmt.Errorf("idem: the session has another prepared statement named %s: either the application prepares one under this name, "+
		"which is idem's, or a pooler gives one session to several clients and does not keep their statements apart "+
		"(then set default_query_exec_mode=exec): %w", name, err)
}
