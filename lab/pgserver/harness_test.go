package pgserver_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/lab/optional"
	"github.com/idem-go/idem/lab/pgserver"
	"github.com/idem-go/idem/lab/waiting"
)

// The test binary is also a program that starts a server and waits to be killed.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "start-and-wait" {
		os.Exit(startAndWait())
	}
	os.Exit(m.Run())
}

func startAndWait() int {
	server, err := pgserver.Start(context.Background(), pgserver.Options{Bin: os.Args[2], Dir: os.Args[3]})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println(server.PID())
	bufio.NewReader(os.Stdin).ReadByte()
	return 0
}

// patience is the limit for operations that should take a moment.
const patience = waiting.Limit

// bin returns the directory of PostgreSQL's programs.
func bin(t *testing.T) string {
	t.Helper()
	dir, err := pgserver.Find(os.Getenv("IDEM_TEST_POSTGRES_BIN"))
	optional.Require(t, err)
	return dir
}

func start(t *testing.T, opts pgserver.Options) *pgserver.Server {
	t.Helper()
	opts.Bin = bin(t)
	server, err := pgserver.Start(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, server)
	return server
}

// passable returns a directory that the server can reach if it runs as another user. t.TempDir is
// not reachable.
func passable(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "idem-pgserver-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	return dir
}

func closeAfter(t *testing.T, server *pgserver.Server) {
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Log(server.LogTail())
		}
	})
}

func connect(t *testing.T, server *pgserver.Server) *pgx.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, server.DSN())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

// eventually polls until a condition holds.
var eventually = waiting.Until
