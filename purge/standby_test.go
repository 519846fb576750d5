package purge

import (
	"context"
	"encoding/binary"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// standby is a replication client that has replayed as much as the test says.
type standby struct {
	t    *testing.T
	conn *pgconn.HijackedConn
}

// newStandby connects to the server as a standby with this name, and waits until it is listed.
func (h *house) newStandby(t *testing.T, name string) *standby {
	t.Helper()
	config, err := pgconn.ParseConfig(h.pool.Config().ConnString())
	if err != nil {
		t.Fatal(err)
	}
	config.RuntimeParams["replication"] = "database"
	config.RuntimeParams["application_name"] = name
	config.RuntimeParams["wal_sender_timeout"] = "0" // what the server asks in between is not answered
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
	// Each test ends with DROP DATABASE, which makes a checkpoint. Without a slot, the server could
	// remove WAL that a slow walsender has not sent yet, and would end the walsender.
	slot := "standby_" + strings.ReplaceAll(newID(), "-", "_")
	s.send(&pgproto3.Query{String: "CREATE_REPLICATION_SLOT " + slot + " TEMPORARY PHYSICAL RESERVE_WAL"})
	receive[*pgproto3.ReadyForQuery](s)
	var from string
	if err := h.pool.QueryRow(t.Context(), "select restart_lsn from pg_replication_slots where slot_name = $1", slot).Scan(&from); err != nil {
		t.Fatal(err)
	}
	s.send(&pgproto3.Query{String: "START_REPLICATION SLOT " + slot + " PHYSICAL " + from})
	receive[*pgproto3.CopyBothResponse](s)
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

// receive returns the next message of a kind.
func receive[M pgproto3.BackendMessage](s *standby) M {
	s.t.Helper()
	for {
		message, err := s.conn.Frontend.Receive()
		if err != nil {
			s.t.Fatal(err)
		}
		switch m := message.(type) {
		case M:
			return m
		case *pgproto3.ErrorResponse:
			s.t.Fatalf("%s: %s", m.Code, m.Message)
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
	for _, n := range []uint64{0, 0, uint64(position)} { // written, flushed: not said, so that the slot keeps all; replayed
		status = binary.BigEndian.AppendUint64(status, n)
	}
	status = append(binary.BigEndian.AppendUint64(status, 0), 0)
	s.send(&pgproto3.CopyData{Data: status})
}
