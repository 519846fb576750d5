package txn

import (
	"reflect"

	"github.com/jackc/pgx/v5"
)

// maxSavepoints is how many functions of one transaction run under a savepoint. A savepoint under which something was
// written stays a subtransaction until the end, and past 64 of them in one transaction every snapshot on the server pays.
const maxSavepoints = 32

// savepoints counts, on a connection, how many parts of a transaction have had a savepoint.
type savepoints struct {
	tx    pgx.Tx
	count int
}

// savepointsOnConn is the name under which a connection remembers that.
const savepointsOnConn = "github.com/idem-go/idem: savepoints"

func hasRoom(conn *pgx.Conn, tx pgx.Tx) bool {
	s, ok := conn.PgConn().CustomData()[savepointsOnConn].(*savepoints)
	return !ok || !same(s.tx, tx) || s.count < maxSavepoints
}

func countSavepoint(conn *pgx.Conn, tx pgx.Tx) {
	data := conn.PgConn().CustomData()
	s, ok := data[savepointsOnConn].(*savepoints)
	if !ok || !same(s.tx, tx) {
		s = &savepoints{tx: tx}
		data[savepointsOnConn] = s
	}
	s.count++
}

// same compares two transactions, of which either may be of a type of the caller's that cannot be compared.
func same(a, b pgx.Tx) bool {
	return reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() && a == b
}
