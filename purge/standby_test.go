package purge

import (
	"context"
	"encoding/binary"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// standby is a client of replication that has replayed what the test says.
type standby struct {
	t    *testing.T
	conn *pgconn.HijackedConn
}

// newStandby connects to the server as a standby of that name, and returns when the server knows it.
func (h *house) newStandby(t *testing.T, name string) *standby {
	t.Helper()
	config, err := pgconn.ParseConfig(h.pool.Config().ConnString())
	if err != nil {
		t.Fatal(err)
	}
	config.RuntimeParams["replication"] = "database"
	config.RuntimeParams["application_name"] = name
	conn, err := pgconn.ConnectConfig(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	hijacked, err := conn.Hijack()
	if err != nil {
		t.Fatal(err)
	}
	s := &standby{t, hijacked}
	t.Cleanup(func() { hijacked.Conn.Close() })
	var from string
	if err := h.pool.QueryRow(t.Context(), "select pg_current_wal_lsn()").Scan(&from); err != nil {
		t.Fatal(err)
	}
	s.send(&pgproto3.Query{String: "START_REPLICATION PHYSICAL " + from})
	for {
		message, err := hijacked.Frontend.Receive()
		if err != nil {
			t.Fatal(err)
		}
		switch m := message.(type) {
		case *pgproto3.ErrorResponse:
			t.Fatalf("%s: %s", m.Code, m.Message)
		case *pgproto3.CopyBothResponse:
			go func() { // what is streamed is of no interest
				buffer := make([]byte, 1<<16)
				for {
					if _, err := hijacked.Conn.Read(buffer); err != nil {
						return
					}
				}
			}()
			return s
		}
	}
}

func (s *standby) send(message pgproto3.FrontendMessage) {
	s.t.Helper()
	s.conn.Frontend.Send(message)
	if err := s.conn.Frontend.Flush(); err != nil {
		s.t.Fatal(err)
	}
}

// hasReplayed tells the server that everything before this position of the WAL has been replayed.
func (s *standby) hasReplayed(position int64) {
	s.t.Helper()
	status := []byte{'r'}
	for range 3 { // written, flushed, replayed
		status = binary.BigEndian.AppendUint64(status, uint64(position))
	}
	status = append(binary.BigEndian.AppendUint64(status, 0), 0)
	s.send(&pgproto3.CopyData{Data: status})
}
