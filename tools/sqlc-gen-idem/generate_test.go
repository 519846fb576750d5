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

func TestAQueryBecomesAStruct(t *testing.T) {
	t.Parallel()
	written := generated(t, plain, read())
	for _, want := range []string{
		"const ReadThingSQL = `-- name: ReadThing :one\nSELECT t.thing, /*moment*/t.at/**/ AS at, " +
			"/*moment*/pg_catalog.now()/**/ AS read_at, t.body, pg_catalog.set_config('a', 'b', true) AS _\n" +
			"FROM idem.things t WHERE t.id OPERATOR(pg_catalog.=) $1::pg_catalog.uuid AND t.at OPERATOR(pg_catalog.<) " +
			"(pg_catalog.now() OPERATOR(pg_catalog.-) $2::pg_catalog.interval) AND t.n OPERATOR(pg_catalog.=) $3::pg_catalog.int4\n`\n",
		`Name: "idem_read_thing", SQL: ReadThingSQL, Replan: true,`,
		"Params:  []roundtrip.Param{roundtrip.TextParam, roundtrip.PlainParam, roundtrip.PlainParam},",
		"Results: []int16{roundtrip.Text, roundtrip.Binary, roundtrip.Binary, roundtrip.Binary, roundtrip.Text},",
		"// ReadThing reads.\ntype ReadThing struct {\n\tID  string\n\tAge time.Duration\n\tN   *int\n\n\tFound bool\n\tReadThingRow\n}",
		"values.Text(q.ID)\n\tvalues.Interval(q.Age)\n\tvalues.NullInt(q.N)\n\ttrip.Add(ReadThingStatement, values.List()...)",
		"r.Thing = row.Text(r.Thing)\n\tr.At = row.Time()\n\tr.ReadAt = row.Time()\n\tr.Body = row.Bytes()\n\trow.Skip()\n}",
	} {
		if !strings.Contains(written, want) {
			t.Errorf("it does not have\n%s", want)
		}
	}
	if t.Failed() {
		t.Log(written)
	}
}

func TestARequestHasTheTypesOfItsDomain(t *testing.T) {
	t.Parallel()
	q := read()
	q.Comments = append(q.Comments, " @in Name Name", " @out Place")
	q.Params[0].Column.Name, q.Params[2].Column.Name = "name", "count"
	q.Columns[0].Name, q.Columns[3].Name = "state", "part"
	q.Columns[3].Type.Name = "text"
	written := generated(t, strings.NewReplacer(neverNull, "", number, "").Replace(options), q)
	for _, want := range []string{
		"type ReadThing struct {\n\tName  Name\n\tAge   time.Duration\n\tCount int\n\n\tFound bool\n\tReadThingRow\n}",
		"values.Text(q.Name.full())\n\tvalues.Interval(q.Age)\n\tvalues.NullInt(orNull(q.Count))",
		"type ReadThingRow struct {\n\tPlace\n\tState  State\n\tAt     time.Time\n\tReadAt time.Time\n}",
		"r.State = State(row.Text(string(r.State)))\n\tr.At = row.Time()\n\tr.ReadAt = row.Time()\n\tr.Place.Part = partOf(row.Text())\n",
	} {
		if !strings.Contains(written, want) {
			t.Errorf("it does not have\n%s", want)
		}
	}
	if t.Failed() {
		t.Log(written)
	}
}

func TestQueriesShareTheTypeOfTheirRows(t *testing.T) {
	t.Parallel()
	one, many := read(), read()
	one.Comments, many.Comments = append(one.Comments, " @row Thing"), append(many.Comments, " @row Thing")
	many.Name, many.Cmd = "ListThings", ":many"
	written := generated(t, plain, one, many)
	for want, times := range map[string]int{
		"type Thing struct {": 1, "\tFound bool\n\tThing Thing\n": 1, "\tRows []Thing\n": 1, "(r *Thing, row *roundtrip.Row) {": 2,
	} {
		if n := strings.Count(written, want); n != times {
			t.Errorf("%q is there %d times, want %d", want, n, times)
		}
	}
	many.Columns[0].Name = "another"
	if _, err := generate(&Request{Queries: []Query{one, many}, Options: []byte(plain)}); err == nil || !strings.Contains(err.Error(), "differ") {
		t.Errorf("rows of two shapes: %v", err)
	}
}

func TestARowOfOnePartIsAValueOfItsType(t *testing.T) {
	t.Parallel()
	q := read()
	q.Cmd, q.Comments = ":many", []string{" @out Place", " @wrapped"}
	q.Columns = []Column{column("part", "text", true)}
	q.Text = "SELECT t.part FROM idem.things t WHERE t.id = $1 AND t.at < now() - $2::interval AND t.n = $3"
	written := generated(t, `{"package": "db", "style": "trip", "types": {"part": "part"},
		"conversions": {"part": {"go": "Part", "read": "partOf(%s)"}}, "parts": {"Place": "part"}}`, q)
	for _, want := range []string{"type readThing struct {", "func readReadThing(r *Place, row *roundtrip.Row) {\n\tr.Part = partOf(row.Text())\n}"} {
		if !strings.Contains(written, want) {
			t.Errorf("it does not have\n%s", want)
		}
	}
	if strings.Contains(written, "type readThingRow") {
		t.Error("it has a type of its own")
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

func TestGenerate_RefusesOptionsWithoutUse(t *testing.T) {
	t.Parallel()
	for want, options := range map[string]string{
		"no query uses the type ReadThin.at": `{"package": "db", "style": "trip", "types": {"ReadThin.at": "X"}}`,
		"no query uses the conversion x":     `{"package": "db", "style": "trip", "conversions": {"x": {"go": "int"}}}`,
		"no query uses the part Key *Key":    `{"package": "db", "style": "trip", "parts": {"Key *Key": "key"}}`,
		"unknown field":                      `{"package": "db", "style": "trip", "typez": {}}`,
	} {
		if _, err := generate(&Request{Queries: []Query{read()}, Options: []byte(options)}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

const (
	neverNull = `, "never_null": "number"`
	number    = `, "number": {"go": "int"}`
)

const plain = `{"package": "db", "style": "trip"}`

// options are those of a package with a few domain types.
const options = `{"package": "db", "style": "trip",
	"types": {"state": "State", "count": "count", "part": "part"` + neverNull + `},
	"conversions": {"count": {"go": "int", "null": "orNull(%s)"}, "part": {"go": "Part", "read": "partOf(%s)"}` + number + `},
	"parts": {"Name Name": "name=full()", "Place": "part"}}`

// generated returns the file that the plugin generates for queries.
func generated(t *testing.T, options string, queries ...Query) string {
	t.Helper()
	request, err := json.Marshal(Request{Queries: queries, Options: []byte(options)})
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
