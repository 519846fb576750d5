package store

import (
	"context"
	"encoding/hex"
	"net"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/idem-go/idem/internal/roundtrip"
)

// request is what every verb is.
type request interface {
	Queue(*roundtrip.Trip)
	Read(*roundtrip.Trip)
}

// ask makes one round trip of requests.
func ask(ctx context.Context, conn *pgx.Conn, requests ...request) error {
	trip := roundtrip.On(conn)
	for _, r := range requests {
		r.Queue(trip)
	}
	trip.Send(ctx)
	for _, r := range requests {
		r.Read(trip)
	}
	return trip.End()
}

// wire is a server of one connection. It notes the statement and the parameters that it is sent, and answers with row.
type wire struct {
	conn   *pgx.Conn
	row    [][]byte // the columns as binary, or as text that is none of bytea
	bytea  []bool   // of which columns the text format is hexadecimal digits
	sql    string
	params [][]byte
}

// newWire connects to such a server.
func newWire(t *testing.T) *wire {
	t.Helper()
	config, err := pgx.ParseConfig("host=127.0.0.1 port=1 user=u database=d sslmode=disable default_query_exec_mode=exec")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{}
	config.DialFunc = func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		go w.serve(server)
		return client, nil
	}
	if w.conn, err = pgx.ConnectConfig(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.conn.Close(context.Background()) })
	return w
}

func (w *wire) serve(conn net.Conn) {
	defer conn.Close()
	backend := pgproto3.NewBackend(conn, conn)
	if _, err := backend.ReceiveStartupMessage(); err != nil {
		return
	}
	backend.Send(&pgproto3.AuthenticationOk{})
	backend.Send(&pgproto3.ParameterStatus{Name: "client_encoding", Value: "UTF8"})
	backend.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	var formats []int16
	for backend.Flush() == nil {
		message, err := backend.Receive()
		if err != nil {
			return
		}
		switch message := message.(type) {
		case *pgproto3.Parse:
			w.sql = message.Query
			backend.Send(&pgproto3.ParseComplete{})
		case *pgproto3.Bind:
			formats = append([]int16{}, message.ResultFormatCodes...)
			w.params = nil
			for _, p := range message.Parameters {
				w.params = append(w.params, append([]byte{}, p...))
			}
			backend.Send(&pgproto3.BindComplete{})
		case *pgproto3.Execute:
			w.answer(backend, formats)
		case *pgproto3.Sync:
			backend.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
		}
	}
}

func (w *wire) answer(backend *pgproto3.Backend, formats []int16) {
	if w.row != nil && len(formats) == len(w.row) {
		fields := make([]pgproto3.FieldDescription, len(formats))
		row := make([][]byte, len(formats))
		for i, format := range formats {
			fields[i].Format, row[i] = format, w.row[i]
			if w.bytea[i] && format == roundtrip.Text {
				row[i] = []byte(`\x` + hex.EncodeToString(w.row[i]))
			}
		}
		backend.Send(&pgproto3.RowDescription{Fields: fields})
		backend.Send(&pgproto3.DataRow{Values: row})
	}
	backend.Send(&pgproto3.CommandComplete{CommandTag: []byte("SELECT 1")})
}
