package main

import (
	"strings"
	"testing"
)

func column(name, typ string, notNull bool) Column {
	return Column{Name: name, NotNull: notNull, Type: Type{Name: typ}}
}

func parameter(number int, c Column) Parameter { return Parameter{Number: number, Column: c} }

// read returns a query with a parameter and a column of each kind.
func read() Query {
	return Query{
		Name: "ReadThing", Cmd: ":one", Filename: "things.sql", Comments: []string{" ReadThing reads.", " @prepared", " @replan"},
		Text: "SELECT t.thing, t.at, now() AS read_at, t.body, set_config('a', 'b', true) AS _\nFROM idem.things t WHERE t.id = $1 AND t.at < now() - $2::interval AND t.n = $3",
		Columns: []Column{
			column("thing", "uuid", true), column("at", "timestamptz", false), column("read_at", "timestamp with time zone", true),
			column("body", "bytea", false), column("_", "text", true),
		},
		Params: []Parameter{
			parameter(1, column("id", "uuid", true)), parameter(2, column("age", "interval", true)), parameter(3, column("n", "pg_catalog.int4", false)),
		},
	}
}

func TestWhatIsNotClearIsRefused(t *testing.T) {
	t.Parallel()
	for what, change := range map[string]func(*Query){
		"the type of id is not known":     func(q *Query) { q.Params[0].Column.Type.Name = "any" },
		"say coalesce":                    func(q *Query) { q.Columns[0] = column("n", "int4", false) },
		"does not travel":                 func(q *Query) { q.Columns[0].Type.Name = "jsonb" },
		"the type of $3 is not known":     func(q *Query) { q.Params = q.Params[:2] },
		"say @pgx":                        func(q *Query) { q.Params[2].Column.IsArray = true },
		"has no name of its own":          func(q *Query) { q.Params[2].Column.Name = "id" },
		"two of its columns are named At": func(q *Query) { q.Columns[3].Name = "at" },
		"a parameter hides the column":    func(q *Query) { q.Columns[3].Name = "id" },
		"sqlc.yaml has no part":           func(q *Query) { q.Comments = append(q.Comments, " @in Nothing") },
		"an unknown annotation @wraped":   func(q *Query) { q.Comments = append(q.Comments, " @wraped") },
		"of its part \"Name Name\"":       func(q *Query) { q.Comments = append(q.Comments, " @in Name Name") },
		"state is no text":                func(q *Query) { q.Params[1].Column = column("state", "interval", true); q.Columns[0].Name = "x" },
		"does not say which value is":     func(q *Query) { q.Params[2].Column.Name = "never_null" },
		"has no schema":                   func(q *Query) { q.Text = strings.Replace(q.Text, "idem.things", "things", 1) },
		"a moment has no name":            func(q *Query) { q.Text = strings.Replace(q.Text, " AS read_at", "", 1) },
		"Go's strings cannot have":        func(q *Query) { q.Text = strings.Replace(q.Text, "'a'", "'`'", 1) },
		"in a UNION":                      func(q *Query) { q.Text += " UNION ALL " + q.Text },
	} {
		q := read()
		change(&q)
		if _, err := generate(&Request{Queries: []Query{q}, Options: []byte(options)}); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// options are those of a package with a few domain types.
const options = `{"package": "db", "style": "trip",
	"types": {"state": "State", "count": "count", "part": "part", "never_null": "number"},
	"conversions": {"count": {"go": "int", "null": "orNull(%s)"}, "part": {"go": "Part", "read": "partOf(%s)"}, "number": {"go": "int"}},
	"parts": {"Name Name": "name=full()", "Place": "part"}}`
