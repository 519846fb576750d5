package pgproxy

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
)

// Codes of the packets that a client can open a connection with, instead of a protocol version.
const (
	cancelRequestCode = 80877102
	sslRequestCode    = 80877103
	gssEncRequestCode = 80877104
)

const maxStartupLen = 10_000 // the server's own limit

// greet reads the first packets of a client up to the one that the server has to see. Encryption is declined.
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

// readStartup reads one packet without reading ahead.
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
