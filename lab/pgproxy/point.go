package pgproxy

type place int

const (
	beforeStatement place = iota
	beforePipeline
	afterForward
	afterAnswer
	atByte
)

// Point is a place in a conversation where a trap can be set.
type Point struct {
	place  place
	match  Match
	tags   []string
	conn   *Conn
	dir    Direction
	offset int64
}

// Before is the point in front of a statement: the server gets everything up to it, and not the message that executes
// it (Execute or Query; its Parse and Bind may have come through). One of several statements in the string of a simple
// Query takes the whole string with it.
func Before(m Match) Point { return Point{place: beforeStatement, match: m} }

// BeforePipeline is the point in front of the pipeline that executes a statement: the server gets nothing of what the
// client sent since its last Sync, Flush or Query. While such a trap is armed, pipelines are forwarded when they are
// complete; one that has begun before is not caught.
func BeforePipeline(m Match) Point { return Point{place: beforePipeline, match: m} }

// AfterForward is the point right behind the message that executes a statement. The server executes it and nobody waits
// for that: what the client does next is a race with the server, as it is on a real network. Where the connection is
// broken, the client does not get the answer, however fast it is. When pgx loses a connection, it sends a request to
// cancel: use [Proxy.Refuse] to keep that away.
func AfterForward(m Match) Point { return Point{place: afterForward, match: m} }

// AfterAnswer is the point where the server has executed a statement and its answer has arrived at the proxy. The client
// gets the answers to everything up to that statement and no row and no completion of the statement itself. An error is
// an answer too; with tags, only a completion counts whose command tag begins with one of them.
func AfterAnswer(m Match, tags ...string) Point {
	return Point{place: afterAnswer, match: m, tags: tags}
}

// AtByte is the point in front of the byte at an offset of one stream, of one connection or of any (nil). Offsets count
// from the beginning of the connection, as [Conn.Bytes] does. The trap springs when that byte is about to be forwarded;
// its event has a connection and neither a stage nor SQL.
func AtByte(c *Conn, dir Direction, offset int64) Point {
	return Point{place: atByte, conn: c, dir: dir, offset: offset}
}
