package roundtrip

import (
	"encoding/hex"
	"regexp"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Statement is a query with the formats of its parameters and results.
type Statement struct {
	SQL     string
	Params  []Param
	Results []int16 // the format of each column: Text or Binary

	// Name is the name under which a connection prepares the statement. It must differ from SQL.
	// Otherwise pgx would use the prepared statement for queries of the application with the same
	// text. A statement without a name is never prepared.
	Name string

	// Replan makes a connection prepare the statement again from time to time. Set it for a
	// statement that has more than one possible plan. Otherwise Postgres keeps its generic plan
	// until the next ANALYZE, even if the table was small when it made the plan and has grown
	// since.
	Replan bool

	formats []int16
	simple  string // SQL for the simple protocol
}

// moments rewrites SQL for the simple protocol, in which the server returns text. The text of a
// timestamp depends on the settings of the session. So the two SQL comments around a timestamp
// column become a call of timestamptz_send, and Row.Time decodes the bytea that the call returns.
var moments = strings.NewReplacer("/*moment*/", "pg_catalog.timestamptz_send(", "/**/", ")::pg_catalog.bytea")

// Param is the format of a parameter.
type Param int

// The formats of parameters.
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

// New returns a copy of s with its derived fields set. The result must not be changed.
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

// Command returns a statement without parameters and results.
func Command(name, sql string) *Statement { return New(Statement{Name: name, SQL: sql}) }

// placeholder matches a parameter such as $1. It also matches a whole name in double quotes,
// because the name may contain text that looks like a parameter.
var placeholder = regexp.MustCompile(`"[^"]*"|\$\d+`)

// interpolate replaces the parameters in sql by the values, as literals. It is used for the simple
// protocol, and for sessions whose encoding is not UTF-8. The SQL casts every parameter, so a
// literal gets the right type. Values of a TextParam or BytesParam are written in hexadecimal,
// which has the same meaning under all settings of the session.
func interpolate(sql string, params []Param, values [][]byte) string {
	return placeholder.ReplaceAllStringFunc(sql, func(name string) string {
		if name[0] == '"' {
			return name
		}
		n, _ := strconv.Atoi(name[1:])
		value := values[n-1]
		switch {
		case value == nil:
			return "NULL"
		case params[n-1] == BytesParam:
			return "pg_catalog.decode('" + hex.EncodeToString(value) + "', 'hex')"
		case params[n-1] == TextParam:
			return "pg_catalog.convert_from(pg_catalog.decode('" + hex.EncodeToString(value) + "', 'hex'), 'UTF8')"
		}
		return "'" + string(value) + "'"
	})
}
