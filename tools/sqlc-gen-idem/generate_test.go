package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

func column(name, typ string, notNull bool) Column {
	return Column{Name: name, NotNull: notNull, Type: Type{Name: typ}}
}

func parameter(number int, c Column) Parameter { return Parameter{Number: number, Column: c} }

// read is a query with one of each kind.
func read() Query {
	return Query{
		Name: "ReadThing", Cmd: ":one", Filename: "things.sql", Comments: []string{" ReadThing reads.", " @prepared", " @replan"},
		Text: "SELECT t.id, t.at, now() AS read_at, t.body, set_config('a', 'b', true) AS _\nFROM idem.things t WHERE t.id = $1 AND t.at < now() - $2::interval AND t.n = $3",
		Columns: []Column{
			column("id", "uuid", true), column("at", "timestamptz", false), column("read_at", "timestamp with time zone", true),
			column("body", "bytea", false), column("_", "text", true),
		},
		Params: []Parameter{
			parameter(1, column("id", "uuid", true)), parameter(2, column("age", "interval", true)), parameter(3, column("n", "pg_catalog.int4", false)),
		},
	}
}

func TestAQueryBecomesAStruct(t *testing.T) {
	t.Parallel()
	written := generated(t, read())
	for _, want := range []string{
		"const ReadThingSQL = `-- name: ReadThing :one\nSELECT t.id, /*moment*/t.at/**/ AS at, " +
			"/*moment*/pg_catalog.now()/**/ AS read_at, t.body, pg_catalog.set_config('a', 'b', true) AS _\n" +
			"FROM idem.things t WHERE t.id OPERATOR(pg_catalog.=) $1::pg_catalog.uuid AND t.at OPERATOR(pg_catalog.<) " +
			"(pg_catalog.now() OPERATOR(pg_catalog.-) $2::pg_catalog.interval) AND t.n OPERATOR(pg_catalog.=) $3::pg_catalog.int4\n`\n",
		`Name: "idem_read_thing", SQL: ReadThingSQL, Replan: true,`,
		"Params:  []roundtrip.Param{roundtrip.TextParam, roundtrip.PlainParam, roundtrip.PlainParam},",
		"Results: []int16{roundtrip.Text, roundtrip.Binary, roundtrip.Binary, roundtrip.Binary, roundtrip.Text},",
		"// ReadThing reads.\ntype ReadThing struct {\n\tID  string\n\tAge time.Duration\n\tN   *int\n\n\tFound bool\n\tRow   ReadThingRow\n}",
		"values.Text(q.ID)\n\tvalues.Interval(q.Age)\n\tvalues.NullInt(q.N)\n\ttrip.Add(ReadThingStatement, values.List()...)",
		"r.ID = row.Text(r.ID)\n\tr.At = row.Time()\n\tr.ReadAt = row.Time()\n\tr.Body = row.Bytes()\n\trow.Skip()\n}",
	} {
		if !strings.Contains(written, want) {
			t.Errorf("it does not have\n%s", want)
		}
	}
	if t.Failed() {
		t.Log(written)
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
		"two of its columns are named ID": func(q *Query) { q.Columns[3].Name = "id" },
		"has no schema":                   func(q *Query) { q.Text = strings.Replace(q.Text, "idem.things", "things", 1) },
		"a moment has no name":            func(q *Query) { q.Text = strings.Replace(q.Text, " AS read_at", "", 1) },
		"Go's strings cannot have":        func(q *Query) { q.Text = strings.Replace(q.Text, "'a'", "'`'", 1) },
		"in a UNION":                      func(q *Query) { q.Text += " UNION ALL " + q.Text },
	} {
		q := read()
		change(&q)
		if _, err := generate(&Request{Queries: []Query{q}, Options: []byte(`{"package": "db", "style": "trip"}`)}); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// generated returns the file that sqlc would write of one query.
func generated(t *testing.T, q Query) string {
	t.Helper()
	request, err := json.Marshal(Request{Queries: []Query{q}, Options: []byte(`{"package": "db", "style": "trip"}`)})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := run(bytes.NewReader(request), &out); err != nil {
		t.Fatal(err)
	}
	var response Response
	if err := json.Unmarshal(out.Bytes(), &response); err != nil || len(response.Files) != 1 || response.Files[0].Name != "things.sql.go" {
		t.Fatalf("%+v, %v", response, err)
	}
	return string(response.Files[0].Contents)
}
