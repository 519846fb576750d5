package roundtrip

import (
	"context"
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
// connection.
func Prepare(ctx context.Context, conn *pgx.Conn, statements []*Statement) error {
	if !IsCold(conn, statements) {
		return nil
	}
	known := preparedOn(conn)
	if known == nil {
		known = make(preparedSet, len(statements))
		conn.PgConn().CustomData()[preparedOnConn] = known
	}
	var cold []*Statement
	pipeline := conn.PgConn().StartPipeline(ctx)
	for _, s := range statements {
		if known[s] == nil {
			cold = append(cold, s)
			pipeline.SendPrepare(s.Name, s.text(), nil)
		}
	}
	err := pipeline.Sync()
	for i := 0; err == nil && i < len(cold); i++ {
		err = learn(known, cold[i], pipeline) // those before one that fails are there all the same
	}
	if closed := pipeline.Close(); err == nil {
		err = closed
	}
	return err
}

// text is the SQL that is prepared. PgBouncer prepares a text once for all who send it, however often they discard it: to have a plan
// made anew takes another text, which is the same for everybody, or each of them would push out what others have prepared.
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
// trip. It does so by messages of the protocol, which a pooler understands that keeps statements under names of its own,
// and by another text.
func Replan(ctx context.Context, conn *pgx.Conn) error {
	known := preparedOn(conn)
	var due []*Statement
	pipeline := conn.PgConn().StartPipeline(ctx)
	for s, p := range known {
		if s.Replan && time.Since(p.planned) > planAge {
			due = append(due, s)
			pipeline.SendDeallocate(s.Name)
			pipeline.SendPrepare(s.Name, s.text(), nil)
		}
	}
	err := pipeline.Sync()
	for i := 0; err == nil && i < len(due); i++ {
		if _, err = pipeline.GetResults(); err == nil { // of the Close
			delete(known, due[i])
			err = learn(known, due[i], pipeline)
		}
	}
	if closed := pipeline.Close(); err == nil {
		err = closed
	}
	return err
}

// learn reads the answer to a statement that was to be prepared.
func learn(known preparedSet, s *Statement, pipeline *pgconn.Pipeline) error {
	result, err := pipeline.GetResults()
	if err != nil {
		return err
	}
	description, ok := result.(*pgconn.StatementDescription)
	if !ok {
		return fmt.Errorf("idem: %T in answer to a statement that was to be prepared", result)
	}
	description.Name = s.Name
	known[s] = &prepared{description: description, planned: time.Now()}
	return nil
}

// Forget makes a connection prepare its statements again. They are stale if somebody has discarded them, or changed the
// table under them.
func Forget(ctx context.Context, conn *pgx.Conn) error {
	known := preparedOn(conn)
	for s := range known {
		if err := conn.PgConn().Deallocate(ctx, s.Name); err != nil {
			return err
		}
		delete(known, s)
	}
	return nil
}
