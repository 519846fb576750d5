package pgwire

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/jackc/pgx/v5/pgconn"
)

// Request codes that a client can send in place of a protocol version in its first packet.
const (
	cancelRequestCode = 80877102
	sslRequestCode    = 80877103
	gssEncRequestCode = 80877104
)

const maxStartupLen = 10_000 // the limit of PostgreSQL itself

// Greet reads the client's packets up to the first packet that must be passed to the server, and
// returns this packet. It reads nothing after the packet. It declines requests for TLS and GSS
// encryption. cancel reports whether the packet is a CancelRequest.
func Greet(client io.ReadWriter) (packet []byte, cancel bool, err error) {
	for {
		packet, code, err := readStartup(client)
		if err != nil {
			return nil, false, err
		}
		switch code {
		case sslRequestCode, gssEncRequestCode:
			if _, err := client.Write([]byte{'N'}); err != nil {
				return nil, false, err
			}
		default:
			return packet, code == cancelRequestCode, nil
		}
	}
}

// readStartup reads one packet of the startup phase. code is the protocol version or a request
// code.
func readStartup(r io.Reader) (packet []byte, code uint32, err error) {
	packet = make([]byte, 8)
	if _, err := io.ReadFull(r, packet); err != nil {
		return nil, 0, err
	}
	length := binary.BigEndian.Uint32(packet)
	if length < 8 || length > maxStartupLen {
		return nil, 0, fmt.Errorf("%w: startup packet of length %d", ErrMalformed, length)
	}
	packet = append(packet, make([]byte, length-8)...)
	_, err = io.ReadFull(r, packet[8:])
	return packet, binary.BigEndian.Uint32(packet[4:]), err
}

// Dial connects to the server of config. It uses TLS if config has a TLS configuration. If the
// server declines TLS, Dial continues without TLS, provided that config allows this
// (sslmode=prefer).
func Dial(ctx context.Context, config *pgconn.Config) (net.Conn, error) {
	network, address := pgconn.NetworkAddress(config.Host, config.Port)
	server, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil || config.TLSConfig == nil {
		return server, err
	}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	request := binary.BigEndian.AppendUint32([]byte{0, 0, 0, 8}, sslRequestCode)
	var answer [1]byte
	if _, err = server.Write(request); err == nil {
		_, err = io.ReadFull(server, answer[:])
	}
	switch {
	case err != nil:
	case answer[0] == 'S':
		return tls.Client(server, config.TLSConfig), nil
	case plainAllowed(config):
		return server, nil
	default:
		err = errors.New("the server has no TLS, and its address asks for it")
	}
	server.Close()
	return nil, err
}

// plainAllowed reports whether config allows a connection without TLS.
func plainAllowed(config *pgconn.Config) bool {
	for _, fallback := range config.Fallbacks {
		if fallback.TLSConfig == nil {
			return true
		}
	}
	return false
}

// CloseWrite ends the stream to the other side, and leaves the stream from the other side open.
func CloseWrite(conn net.Conn) {
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		half.CloseWrite()
	}
}

// Reset closes a TCP connection with RST instead of FIN, so that the other side notices at once.
// Any other connection is closed normally.
func Reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		tcp.SetLinger(0)
	}
	conn.Close()
}
