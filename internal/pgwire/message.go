// Package pgwire has the code that the proxies of this repository share. It handles the framing of
// PostgreSQL's protocol and the first packets of a connection. Closing a Listener also closes its
// connections. The bodies of messages are decoded with pgproto3.
package pgwire

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
)

// Types of messages: first the messages of the client, then the messages of the server. The same
// letter can have two meanings, one for each direction.
const (
	Bind         = 'B'
	Close        = 'C'
	CopyDone     = 'c'
	CopyFail     = 'f'
	Describe     = 'D'
	Execute      = 'E'
	Flush        = 'H'
	FunctionCall = 'F'
	Parse        = 'P'
	Query        = 'Q'
	Sync         = 'S'
	Terminate    = 'X'

	BindComplete     = '2'
	CloseComplete    = '3'
	CommandComplete  = 'C'
	CopyBothResponse = 'W'
	CopyInResponse   = 'G'
	EmptyQuery       = 'I'
	ErrorResponse    = 'E'
	NoData           = 'n'
	ParseComplete    = '1'
	PortalSuspended  = 's'
	ReadyForQuery    = 'Z'
	RowDescription   = 'T'
)

const (
	headerLen = 5 // the type byte, and a length that includes itself but not the type
	bufferLen = 64 << 10
)

// Message is one complete message in its wire format.
type Message []byte

// Kind returns the type byte.
func (m Message) Kind() byte { return m[0] }

// Body returns the bytes after the type and the length.
func (m Message) Body() []byte { return m[headerLen:] }

// ErrMalformed is wrapped by an error of Next or Greet if a message or startup packet has an
// impossible length.
var ErrMalformed = errors.New("malformed message")

// Reader splits a byte stream into messages.
type Reader struct {
	src *bufio.Reader
	buf []byte
}

// NewReader returns a reader of the messages that follow the startup packet.
func NewReader(src io.Reader) *Reader { return &Reader{src: bufio.NewReaderSize(src, bufferLen)} }

// Next waits for a message and returns it. The message is valid until the next call of Next.
func (r *Reader) Next() (Message, error) {
	head, err := r.src.Peek(headerLen)
	if err != nil {
		r.buf = append(r.buf[:0], head...)
		return nil, err
	}
	r.buf = r.buf[:0]
	size, err := size(head)
	if err != nil {
		return nil, err
	}
	r.buf = slices.Grow(r.buf, size)[:size]
	n, err := io.ReadFull(r.src, r.buf)
	r.buf = r.buf[:n]
	return r.buf, err
}

// Ready reports whether the next message has arrived completely or is malformed, so that Next would
// not wait.
func (r *Reader) Ready() bool {
	if r.src.Buffered() < headerLen {
		return false
	}
	head, _ := r.src.Peek(headerLen)
	size, err := size(head)
	return err != nil || r.src.Buffered() >= size
}

// Buffered reports whether bytes have been read that Next has not returned yet.
func (r *Reader) Buffered() bool { return r.src.Buffered() > 0 }

// Rest returns the bytes of an incomplete message. Call it after an error of Next.
func (r *Reader) Rest() []byte { return r.buf }

// size returns the size of the message that begins with the header head. The size includes the
// header.
func size(head []byte) (int, error) {
	length := int64(binary.BigEndian.Uint32(head[1:]))
	if length < 4 || length > 1<<30 {
		return 0, fmt.Errorf("%w: type %q, length %d", ErrMalformed, head[0], length)
	}
	return int(length) + 1, nil
}
