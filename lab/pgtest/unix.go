package pgtest

import (
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// Unix returns the address of a proxy in front of dsn that listens on a Unix socket. If the
// connection to the server is reset, the client's connection ends.
func Unix(t testing.TB, dsn string) string {
	t.Helper()
	server, err := pgconn.ParseConfig(dsn)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	address, err := url.Parse(dsn)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	dir, err := os.MkdirTemp("", "idem") // a short path: that of a socket is at most 108 bytes long
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	listener, err := net.Listen("unix", filepath.Join(dir, ".s.PGSQL.5432"))
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	network, to := pgconn.NetworkAddress(server.Host, server.Port)
	var running sync.WaitGroup
	t.Cleanup(func() { listener.Close(); running.Wait() })
	running.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				defer client.Close()
				server, err := net.Dial(network, to)
				if err != nil {
					return
				}
				var up sync.WaitGroup
				defer up.Wait()
				defer server.Close()
				up.Go(func() {
					defer client.Close()
					io.Copy(server, client)
					server.(*net.TCPConn).CloseWrite()
				})
				io.Copy(client, server)
				client.Close()
			})
		}
	})
	// pgx takes a host that begins with a slash for the directory of a Unix socket.
	address.Host = ""
	query := address.Query()
	query.Set("host", dir)
	query.Set("port", "5432")
	address.RawQuery = query.Encode()
	return address.String()
}
