package roundtrip

import (
	"strings"

	"github.com/jackc/pgx/v5"
)

// Statement is a query together with the formats in which its parameters and results travel.
type Statement struct {
	SQL     string
	Params  []Param
	Results []int16 // Text or Binary, one for each column

	// Name is the one under which a connection prepares the statement. It must not be the text of the SQL: pgx would use
	// such a statement for the caller's, too. A statement without a name is never prepared.
	Name string

	// Replan makes a connection prepare the statement again every now and then. It is for statements that have a plan to
	// choose: a generic plan that was made when a table was small is kept until the next analyze, however the table grows.
	Replan bool

	formats []int16
	simple  string // the text as it travels by the simple protocol
}

// moments makes of the marks around each moment of a result what gives it a form that no setting of the session changes. By the
// extended protocol it travels in binary format, which is the same.
var moments = strings.NewReplacer("/*moment*/", "pg_catalog.timestamptz_send(", "/**/", ")::pg_catalog.bytea")

// Param is the form in which a parameter travels.
type Param int

// The forms of parameters.
const (
	PlainParam Param = iota // ASCII without quotes and backslashes, such as a number or a UUID
	TextParam               // any text in UTF-8
	BytesParam              // bytea
)

// The formats of results.
const (
	Text   = pgx.TextFormatCode
	Binary = pgx.BinaryFormatCode
)

// New completes a statement, which is then never changed.
func New(s Statement) *Statement {
	s.formats = make([]int16, len(s.Params))
	for i, param := range s.Params {
		if param == BytesParam {
			s.formats[i] = Binary
		}
	}
	s.simple = moments.Replace(s.SQL)
	return &s
}

// Command is a statement without parameters and results.
func Command(name, sql string) *Statement { return New(Statement{Name: name, SQL: sql}) }
