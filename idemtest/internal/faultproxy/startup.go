package faultproxy

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// These are the codes that a client may send in place of a protocol version.
const (
	cancelRequest = 80877102
	sslRequest    = 80877103
	gssRequest    = 80877104
)

const dialLimit = 30 * time.Second

// start handles the startup of a connection: it refuses encryption to the client, connects to the
// server and forwards the startup message. It forwards a CancelRequest too, which has no answer.
// start returns false if the connection has ended.
func (c *conn) start(r *bufio.Reader) bool {
	for {
		code, raw, err := readStartup(r)
		if err != nil {
			return false
		}
		if code == sslRequest || code == gssRequest {
			if _, err := c.client.Write([]byte{'N'}); err != nil {
				return false
			}
			continue
		}
		server, err := dial(c.proxy.server)
		if err != nil {
			c.client.Write(refusal(err))
			return false
		}
		if !c.connected(server) {
			return false
		}
		if _, err := server.Write(raw); err != nil {
			return false
		}
		if code == cancelRequest {
			io.Copy(io.Discard, server) // wait until the server has read the request
			return false
		}
		return true
	}
}

// connected stores the connection to the server. It returns false, and closes server, if the
// client's connection was cut meanwhile.
func (c *conn) connected(server net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		server.Close()
		return false
	}
	c.server = server
	return true
}

// dial connects to the server. It negotiates TLS if config has a TLS configuration. If the server
// refuses TLS, dial continues without it only if config allows that (sslmode=prefer).
func dial(config *pgconn.Config) (net.Conn, error) {
	network, address := pgconn.NetworkAddress(config.Host, config.Port)
	server, err := net.DialTimeout(network, address, dialLimit)
	if err != nil || config.TLSConfig == nil {
		return server, err
	}
	request := binary.BigEndian.AppendUint32([]byte{0, 0, 0, 8}, sslRequest)
	if _, err := server.Write(request); err != nil {
		server.Close()
		return nil, err
	}
	var answer [1]byte
	if _, err := io.ReadFull(server, answer[:]); err != nil {
		server.Close()
		return nil, err
	}
	switch {
	case answer[0] == 'S':
		return tls.Client(server, config.TLSConfig), nil
	case plainAllowed(config):
		return server, nil
	}
	server.Close()
	return nil, errors.New("the server has no TLS, and its address asks for it")
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

// refusal returns an ErrorResponse message with SQLSTATE 08001.
func refusal(err error) []byte {
	body := fmt.Appendf(nil, "SFATAL\x00VFATAL\x00C08001\x00Midemtest cannot reach the server: %v\x00\x00", err)
	return append(binary.BigEndian.AppendUint32([]byte{'E'}, uint32(len(body)+4)), body...)
}
