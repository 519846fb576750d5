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

// planAge is how old the plan of a Statement with Replan may be when its connection is given back.
const planAge = 2 * time.Second

// The names under which a connection remembers what costs too much to find out each time.
const (
	modeOfConn     = "github.com/idem-go/idem: exec mode"
	preparedOnConn = "github.com/idem-go/idem: prepared"
)

// prepared is a statement that a connection knows.
type prepared struct {
	description *pgconn.StatementDescription
	planned     time.Time
}

type preparedSet map[*Statement]*prepared

// preparedOn returns what the connection has prepared, nil if nothing.
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

// IsCold reports whether Prepare has something to send.
func IsCold(conn *pgx.Conn, statements []*Statement) bool {
	if execMode(conn) != pgx.QueryExecModeCacheStatement {
		return false
	}
	known := preparedOn(conn)
	for _, s := range statements {
		if known[s] == nil {
			return true
		}
	}
	return false
}

// Prepare makes statements known to a connection that prepares statements at all. It costs one round trip, once per
// connection, together with the commands ahead. Where it has nothing to prepare it sends nothing.
func Prepare(ctx context.Context, conn *pgx.Conn, statements []*Statement, ahead ...*Ahead) error {
	if !IsCold(conn, statements) {
		return nil
	}
	var cold []*Statement
	known := knownTo(conn)
	for _, s := range statements {
		if known[s] == nil {
			cold = append(cold, s)
		}
	}
	return replace(ctx, conn, ahead, nil, cold)
}

// knownTo is preparedOn for a caller that is going to add to it.
func knownTo(conn *pgx.Conn) preparedSet {
	known := preparedOn(conn)
	if known == nil {
		known = preparedSet{}
		conn.PgConn().CustomData()[preparedOnConn] = known
	}
	return known
}

// text is the SQL that is prepared. PgBouncer prepares a text once for all who send it, however often they discard it: to have a plan
// made anew takes another text, which is the same for all, or each of them would push out what others have prepared.
func (s *Statement) text() string {
	if !s.Replan {
		return s.SQL
	}
	return s.SQL + "\n-- " + strconv.FormatInt(time.Now().UnixNano()/int64(planAge), 36)
}

// IsDue reports whether a statement with Replan was prepared so long ago that Replan has something to do.
func IsDue(conn *pgx.Conn) bool {
	for s, p := range preparedOn(conn) {
		if s.Replan && time.Since(p.planned) > planAge {
			return true
		}
	}
	return false
}

// Replan prepares again what is due: what the statements were known as before is gone, with its plan. It costs one round
// trip, together with the commands ahead. It does so by messages of the protocol, which a pooler understands that keeps
// statements under names of its own, and by another text.
func Replan(ctx context.Context, conn *pgx.Conn, ahead ...*Ahead) error {
	var due []*Statement
	for s, p := range preparedOn(conn) {
		if s.Replan && time.Since(p.planned) > planAge {
			due = append(due, s)
		}
	}
	return replace(ctx, conn, ahead, due, due)
}

// Renew prepares statements on a connection that may have lost what it has prepared: the program has discarded that, or has
// changed the table under it. Whatever else the connection knew is forgotten. It costs one round trip.
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

// Ahead is a command that travels ahead of statements that are to be prepared.
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

// replace sends commands, discards old statements and prepares new ones. After an error the rest is not done, and the connection
// is known to have what it has.
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
		err = readReplaced(pipeline, knownTo(conn), ahead, old, fresh)
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
		if err := learn(known, s, pipeline); err != nil {
			return err
		}
	}
	return nil
}

// learn reads the answer to a statement that was to be prepared.
func learn(known preparedSet, s *Statement, pipeline *pgconn.Pipeline) error {
	result, err := pipeline.GetResults()
	if err != nil {
		return taken(s.Name, err)
	}
	description, ok := result.(*pgconn.StatementDescription)
	if !ok {
		return fmt.Errorf("idem: %T in answer to a statement that was to be prepared", result)
	}
	description.Name = s.Name
	known[s] = &prepared{description: description, planned: time.Now()}
	return nil
}

// taken tells what to do about a name under which the session has a statement already.
func taken(name string, err error) error {
	const duplicatePreparedStatement = "42P05"
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) || pgErr.Code != duplicatePreparedStatement {
		return err
	}
	return fmt.Errorf("idem: the session has another prepared statement named %s: either the application prepares one under this name, "+
		"which is idem's, or a pooler gives one session to several clients and does not keep their statements apart "+
		"(then set default_query_exec_mode=exec): %w", name, err)
}
