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

// What a client may send first, instead of its name.
const (
	cancelRequest = 80877102
	sslRequest    = 80877103
	gssRequest    = 80877104
)

const dialLimit = 30 * time.Second

// start carries the beginning of a connection. It is false if there is nothing to follow.
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
			io.Copy(io.Discard, server) // until the server has taken it
			return false
		}
		return true
	}
}

// connected keeps the connection to the server, unless all is over.
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

// dial connects to the server, and speaks TLS with it where its address says so.
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

func plainAllowed(config *pgconn.Config) bool {
	for _, fallback := range config.Fallbacks {
		if fallback.TLSConfig == nil {
			return true
		}
	}
	return false
}

// refusal is the message by which a server says that it cannot be connected to.
func refusal(err error) []byte {
	body := fmt.Appendf(nil, "SFATAL\x00VFATAL\x00C08001\x00Midemtest cannot reach the server: %v\x00\x00", err)
	return append(binary.BigEndian.AppendUint32([]byte{'E'}, uint32(len(body)+4)), body...)
}
