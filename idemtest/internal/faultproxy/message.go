package faultproxy

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
)

// message is a message of the Postgres protocol. kind is its type byte. raw are all of its bytes,
// including type and length.
type message struct {
	kind byte
	raw  []byte
}

func (m message) body() []byte { return m.raw[5:] }

const longest = 1 << 30 // the maximum that a server accepts

var errLength = errors.New("faultproxy: impossible length of a message")

// readMessage reads a message with a type byte.
func readMessage(r *bufio.Reader) (message, error) {
	head := make([]byte, 5, 512)
	if _, err := io.ReadFull(r, head); err != nil {
		return message{}, err
	}
	raw, err := readRest(r, head, int(binary.BigEndian.Uint32(head[1:])))
	return message{kind: head[0], raw: raw}, err
}

// readStartup reads a message from the start of a connection, which has no type byte. code is the
// protocol version, or one of the request codes of startup.go.
func readStartup(r *bufio.Reader) (code uint32, raw []byte, err error) {
	head := make([]byte, 4, 512)
	if _, err := io.ReadFull(r, head); err != nil {
		return 0, nil, err
	}
	if raw, err = readRest(r, head, int(binary.BigEndian.Uint32(head))); err != nil || len(raw) < 8 {
		return 0, raw, errors.Join(err, io.ErrUnexpectedEOF)
	}
	return binary.BigEndian.Uint32(raw[4:]), raw, nil
}

// readRest reads the rest of a message. head is what was already read. length does not include the
// type byte.
func readRest(r *bufio.Reader, head []byte, length int) ([]byte, error) {
	if length < 4 || length > longest {
		return nil, errLength
	}
	raw := append(head, make([]byte, length-4)...)
	_, err := io.ReadFull(r, raw[len(head):])
	return raw, err
}

// query returns a Query message, the simple protocol's, with sql.
func query(sql string) []byte {
	raw := binary.BigEndian.AppendUint32([]byte{'Q'}, uint32(len(sql)+5))
	return append(append(raw, sql...), 0)
}

// cString returns the NUL-terminated string at the start of body, and the bytes after it.
func cString(body []byte) (string, []byte) {
	text, rest, _ := bytes.Cut(body, []byte{0})
	return string(text), rest
}

// endsTransaction reports whether sql rolls back a transaction.
func endsTransaction(sql string) bool {
	word := strings.ToLower(strings.TrimSpace(sql))
	return strings.HasPrefix(word, "rollback") || strings.HasPrefix(word, "abort")
}
