package pgproxy_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idem-go/idem/lab/pgproxy"
)

func TestEveryExecModePasses(t *testing.T) {
	t.Parallel()
	database(t)
	inEveryMode(t, func(t *testing.T, mode pgx.QueryExecMode) {
		conn := connect(t, start(t).DSN(), mode)
		for range 3 { // the first run prepares the statements
			var n int
			if err := conn.QueryRow(within(t), "select $1::int + 1", 41).Scan(&n); err != nil || n != 42 {
				t.Fatalf("got %d, %v", n, err)
			}
			var failure *pgconn.PgError
			if _, err := conn.Exec(within(t), "select 1 / $1::int", 0); !errors.As(err, &failure) || failure.Code != "22012" {
				t.Fatalf("got %v, want a division by zero", err)
			}
			batch := &pgx.Batch{}
			batch.Queue("select $1::text", "a;b'c")
			batch.Queue("select $1::text", "--")
			results := conn.SendBatch(within(t), batch)
			var first, second string
			err := errors.Join(results.QueryRow().Scan(&first), results.QueryRow().Scan(&second), results.Close())
			if err != nil || first != "a;b'c" || second != "--" {
				t.Fatalf("got %q, %q, %v", first, second, err)
			}
		}
	})
}

func TestLargeMessagesPassUnchanged(t *testing.T) {
	t.Parallel()
	database(t)
	inEveryMode(t, func(t *testing.T, mode pgx.QueryExecMode) {
		conn := connect(t, start(t).DSN(), mode)
		sent := bytes.Repeat([]byte("0123456789abcdef"), 8<<20/16)
		var got []byte
		if err := conn.QueryRow(within(t), "select $1::bytea", sent).Scan(&got); err != nil || !bytes.Equal(got, sent) {
			t.Fatalf("got %d bytes, %v, want the %d bytes that were sent", len(got), err, len(sent))
		}
	})
}

func TestCopyPassesBothWays(t *testing.T) {
	t.Parallel()
	w := newWitness(t)
	p := start(t)
	conn := connect(t, p.DSN(), pgx.QueryExecModeExec)
	const rows = 50_000
	source := pgx.CopyFromSlice(rows, func(i int) ([]any, error) { return []any{i}, nil })
	if n, err := conn.CopyFrom(within(t), pgx.Identifier{w.name}, []string{"id"}, source); n != rows || err != nil {
		t.Fatalf("copied %d, %v", n, err)
	}
	answered := p.Next(pgproxy.Answered, pgproxy.Contains("to stdout"))
	var out bytes.Buffer
	tag, err := conn.PgConn().CopyTo(within(t), &out, w.sql("copy (select id from %s) to stdout"))
	if err != nil || tag.RowsAffected() != rows || bytes.Count(out.Bytes(), []byte("\n")) != rows {
		t.Fatalf("got %s, %v and %d bytes", tag, err, out.Len())
	}
	if event := receive(t, answered, "the answer to be reported"); event.Tag != tag.String() {
		t.Errorf("reported as %q, want %q", event.Tag, tag)
	}
}

func TestCancelRequestReachesTheServer(t *testing.T) {
	t.Parallel()
	config, err := pgx.ParseConfig(start(t).DSN())
	if err != nil {
		t.Fatal(err)
	}
	running := make(chan struct{}, 1) // the server sends a notice at once
	config.OnNotice = func(*pgconn.PgConn, *pgconn.Notice) { running <- struct{}{} }
	conn, err := pgx.ConnectConfig(within(t), config)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(within(t))
	slept := inBackground(func() error {
		_, err := conn.Exec(within(t), "do $$ begin raise notice 'running'; perform pg_sleep(60); end $$")
		return err
	})
	receive(t, running, "the notice")
	if err := conn.PgConn().CancelRequest(within(t)); err != nil {
		t.Fatal(err)
	}
	var failure *pgconn.PgError
	if err := receive(t, slept, "the cancelled statement"); !errors.As(err, &failure) || failure.Code != "57014" {
		t.Fatalf("got %v, want 57014", err)
	}
}

func TestEncryptionIsDeclined(t *testing.T) {
	t.Parallel()
	for name, code := range map[string]uint32{"SSLRequest": 80877103, "GSSENCRequest": 80877104} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, err := net.Dial("tcp", start(t).Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			request := binary.BigEndian.AppendUint32([]byte{0, 0, 0, 8}, code)
			for range 2 {
				client.Write(request)
				answer := make([]byte, 1)
				if _, err := io.ReadFull(client, answer); err != nil || answer[0] != 'N' {
					t.Fatalf("got %q, %v", answer, err)
				}
			}
		})
	}
}
