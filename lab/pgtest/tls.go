package pgtest

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idem-go/idem/internal/pgwire"
)

// TLS returns the address of a TLS proxy in front of dsn. Clients must connect to the proxy with
// TLS. If the connection to the server is reset, the proxy resets the client's connection.
func TLS(t testing.TB, dsn string) string {
	t.Helper()
	return tlsInFrontOf(t, dsn, nil)
}

// TLSClosedAfter is like [TLS], but with the first answer that contains the parameter text, the
// proxy sends close_notify in the same packet. It then keeps the socket open, reads what the client
// sends, and answers nothing.
func TLSClosedAfter(t testing.TB, dsn, text string) string {
	t.Helper()
	return tlsInFrontOf(t, dsn, []byte(text))
}

func tlsInFrontOf(t testing.TB, dsn string, closeAfter []byte) string {
	t.Helper()
	server, err := pgconn.ParseConfig(dsn)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	address, err := url.Parse(dsn)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	network, to := pgconn.NetworkAddress(server.Host, server.Port)
	certified := httptest.NewTLSServer(nil) // has a certificate for the loopback address
	defer certified.Close()
	front := &tlsFront{
		config:     &tls.Config{Certificates: certified.TLS.Certificates},
		dial:       func() (net.Conn, error) { return net.Dial(network, to) },
		closeAfter: closeAfter,
	}
	listener, err := pgwire.Listen(front.carry)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(func() { listener.Close() })

	address.Host = listener.Addr().String()
	query := address.Query()
	query.Set("sslmode", "require")
	query.Del("host")
	query.Del("port")
	address.RawQuery = query.Encode()
	return address.String()
}

type tlsFront struct {
	config     *tls.Config
	dial       func() (net.Conn, error)
	closeAfter []byte // close_notify is sent with the answer that contains this text; nil: only at the end
}

const sslRequest = 80877103

func (f *tlsFront) carry(l *pgwire.Listener, conn net.Conn) {
	var request [8]byte
	if _, err := io.ReadFull(conn, request[:]); err != nil || binary.BigEndian.Uint32(request[4:]) != sslRequest {
		return
	}
	if _, err := conn.Write([]byte{'S'}); err != nil {
		return
	}
	// packets is the layer below TLS. It can send an answer and the close_notify in one write.
	packets := &packets{Conn: conn}
	client := tls.Server(packets, f.config)
	server, err := f.dial()
	if err != nil || !l.Keep(server) {
		return
	}
	defer l.Release(server)
	var up sync.WaitGroup
	defer up.Wait()
	up.Go(func() {
		io.Copy(server, client)
		server.(*net.TCPConn).CloseWrite()
	})
	if f.closeAfter != nil {
		f.forwardUntilClose(client, packets, server)
		return
	}
	if _, err := io.Copy(client, server); err != nil {
		// The connection to the server was reset, so the client gets RST as well.
		pgwire.Reset(conn)
		return
	}
	client.CloseWrite()
}

// forwardUntilClose forwards answers up to the one that contains f.closeAfter, and sends
// close_notify with it.
func (f *tlsFront) forwardUntilClose(client *tls.Conn, packets *packets, server net.Conn) {
	ready := []byte{'Z', 0, 0, 0, 5} // ReadyForQuery without its last byte
	met := false
	for answer := make([]byte, 64<<10); ; {
		n, err := server.Read(answer)
		if err != nil {
			client.Close()
			return
		}
		// Once the text was found, hold all writes until the answer is complete at ReadyForQuery.
		met = met || bytes.Contains(answer[:n], f.closeAfter)
		packets.hold(met)
		if _, err := client.Write(answer[:n]); err != nil {
			return
		}
		if met && bytes.HasSuffix(answer[:max(n-1, 0)], ready) {
			client.CloseWrite()
			client.SetWriteDeadline(time.Time{}) // CloseWrite has set a deadline, which would also stop the held data
			packets.hold(false)
			io.Copy(io.Discard, server)
			return
		}
	}
}

// packets is a connection that can hold its writes back and send them together.
type packets struct {
	net.Conn
	mu      sync.Mutex
	holds   bool
	waiting []byte
}

func (p *packets) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.holds {
		p.waiting = append(p.waiting, b...)
		return len(b), nil
	}
	return p.Conn.Write(b)
}

func (p *packets) hold(holds bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.holds && !holds {
		p.Conn.Write(p.waiting)
		p.waiting = nil
	}
	p.holds = holds
}
