package roundtrip

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/lab/pgtest"
)

// connect returns a new connection to the server at dsn.
func connect(t testing.TB, dsn string, mode pgx.QueryExecMode) *pgx.Conn {
	t.Helper()
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	config.DefaultQueryExecMode = mode
	conn, err := pgx.ConnectConfig(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

// newConn returns a connection to a new database.
func newConn(t testing.TB, mode pgx.QueryExecMode) *pgx.Conn {
	t.Helper()
	return connect(t, pgtest.EmptyDSN(t), mode)
}

// modes are the exec modes that differ in how statements are sent.
var modes = map[string]pgx.QueryExecMode{
	"prepared": pgx.QueryExecModeCacheStatement, "exec": pgx.QueryExecModeExec, "simple protocol": pgx.QueryExecModeSimpleProtocol,
}

// echo returns its parameters: a number, a text and a bytea.
var echo = New(Statement{
	Name: "test_echo",
	SQL: `select $1::pg_catalog.int8::pg_catalog.text, pg_catalog.convert_to($2::pg_catalog.text, 'UTF8'),
		$3::pg_catalog.bytea, $2::pg_catalog.text is null, $3::pg_catalog.bytea`,
	Params:  []Param{PlainParam, TextParam, BytesParam},
	Results: []int16{Text, Binary, Binary, Text, Text},
})

// echoed is the answer to echo.
type echoed struct {
	number      string
	text        []byte
	bytes       []byte
	isNull      bool
	bytesAsText []byte
}

func (e *echoed) read(row *Row) {
	e.number, e.text, e.bytes, e.isNull, e.bytesAsText = row.Text(), row.Bytes(), row.Bytes(), row.Bool(), row.Bytes()
}

// exec makes one round trip of commands.
func exec(t testing.TB, conn *pgx.Conn, commands ...string) {
	t.Helper()
	trip := On(conn)
	for _, c := range commands {
		trip.Exec(c)
	}
	trip.Send(context.Background())
	if err := trip.End(); err != nil {
		t.Fatal(err)
	}
}
