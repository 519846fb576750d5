package pgproxy

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
)

// Request codes that a client can send in place of a protocol version in its first packet.
const (
	cancelRequestCode = 80877102
	sslRequestCode    = 80877103
	gssEncRequestCode = 80877104
)

const maxStartupLen = 10_000 // the limit of Postgres itself

// greet reads the client's packets up to the first one that the server must receive. It declines
// requests for TLS and GSS encryption. cancel reports whether packet is a CancelRequest.
func greet(client net.Conn) (packet []byte, cancel bool, err error) {
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

// readStartup reads exactly one packet. It must not read ahead, because the bytes that follow
// belong to the pipe. code is the protocol version or a request code.
func readStartup(r io.Reader) (packet []byte, code uint32, err error) {
	packet = make([]byte, 8)
	if _, err := io.ReadFull(r, packet); err != nil {
		return nil, 0, err
	}
	length := binary.BigEndian.Uint32(packet)
	if length < 8 || length > maxStartupLen {
		return nil, 0, fmt.Errorf("startup packet of length %d", length)
	}
	packet = append(packet, make([]byte, length-8)...)
	_, err = io.ReadFull(r, packet[8:])
	return packet, binary.BigEndian.Uint32(packet[4:]), err
}
