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
	Results []int16 // Text or Binary, for each column

	// Name is the name under which a connection prepares the statement. It must not be the text of
	// the SQL, because pgx would use the prepared statement for the caller's queries of that text.
	// A statement without a name is never prepared.
	Name string

	// Replan makes a connection prepare the statement again from time to time. It is for statements
	// with a choice of plans: a generic plan that was made when a table was small is kept until the
	// next ANALYZE, even if the table grows.
	Replan bool

	formats []int16
	simple  string // the text for the simple protocol
}

// moments replaces the marks around a timestamp in a result by functions whose text output does not
// depend on the settings of the session. In the extended protocol the marks are comments, because
// timestamps are sent in binary format.
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

// New returns the statement s with its derived fields. It must not be changed afterwards.
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

// placeholder matches a parameter, or a name in double quotes, which may contain what looks like a
// parameter.
var placeholder = regexp.MustCompile(`"[^"]*"|\$\d+`)

// interpolate writes the values into the statement as literals. The simple protocol needs that, and
// so do sessions whose encoding is not UTF-8. The SQL casts every parameter, so a literal gets the
// type of the parameter. Values that are not plain are written in hexadecimal, which no setting of
// the session changes.
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
