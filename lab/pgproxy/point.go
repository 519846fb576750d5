package pgproxy

type place int

const (
	beforeStatement place = iota
	beforePipeline
	afterForward
	afterAnswer
	atByte
)

// Point is a position in the traffic where a trap can be set.
type Point struct {
	place  place
	match  Match
	tags   []string
	conn   *Conn
	dir    Direction
	offset int64
}

// Before is the point in front of the message that executes a statement, which is Execute or Query.
// The server gets everything before that message, possibly including the statement's Parse and
// Bind. If the statement is one of several in a simple Query, the point is in front of the whole
// Query.
func Before(m Match) Point { return Point{place: beforeStatement, match: m} }

// BeforePipeline is the point in front of the pipeline that executes a statement. The server gets
// nothing that the client sent after its last Sync, Flush or Query. While such a trap is armed, the
// proxy holds each pipeline until the pipeline is complete, and then forwards it. A pipeline that
// had begun before the trap was armed is not caught.
func BeforePipeline(m Match) Point { return Point{place: beforePipeline, match: m} }

// AfterForward is the point directly after the message that executes a statement. The server gets
// the message and executes the statement. The proxy does not wait for that, so whatever the client
// does next races with the server, as on a real network. If the action breaks the connection, the
// client does not get the answer, however fast the server is. When pgx loses a connection, it sends
// a CancelRequest; [Proxy.Refuse] keeps that request from the server.
func AfterForward(m Match) Point { return Point{place: afterForward, match: m} }

// AfterAnswer is the point at which the server's completion of a statement has arrived at the
// proxy. The client gets all answers to earlier statements, but neither rows nor the completion of
// the statement itself. An ErrorResponse is an answer too. If tags are given, the trap springs only
// if the command tag of the completion begins with one of them.
func AfterAnswer(m Match, tags ...string) Point {
	return Point{place: afterAnswer, match: m, tags: tags}
}

// AtByte is the point before one byte of one stream of a connection. The offset of the byte counts
// from the beginning of the connection, as in [Conn.Bytes]. The trap springs when the byte is about
// to be forwarded. Its event has a connection, but no stage and no SQL.
func AtByte(c *Conn, dir Direction, offset int64) Point {
	return Point{place: atByte, conn: c, dir: dir, offset: offset}
}
