package pgproxy

import (
	"encoding/binary"
	"fmt"
	"io"
)

// Types of the messages that the proxy decodes. The same letter can have two meanings, one for each
// direction.
const (
	msgBind         = 'B'
	msgClose        = 'C'
	msgCopyDone     = 'c'
	msgCopyFail     = 'f'
	msgDescribe     = 'D'
	msgExecute      = 'E'
	msgFlush        = 'H'
	msgFunctionCall = 'F'
	msgParse        = 'P'
	msgQuery        = 'Q'
	msgSync         = 'S'

	msgBackendKeyData  = 'K'
	msgBindComplete    = '2'
	msgCloseComplete   = '3'
	msgCommandComplete = 'C'
	msgCopyInResponse  = 'G'
	msgEmptyQuery      = 'I'
	msgErrorResponse   = 'E'
	msgNoData          = 'n'
	msgParseComplete   = '1'
	msgPortalSuspended = 's'
	msgReadyForQuery   = 'Z'
	msgRowDescription  = 'T'
)

const (
	headerLen = 5 // the type byte, and a length that includes itself but not the type
	readLen   = 64 << 10
)

// message is one complete message in its wire format.
type message []byte

func (m message) kind() byte   { return m[0] }
func (m message) body() []byte { return m[headerLen:] }

// framer splits a byte stream into messages.
type framer struct {
	src io.Reader
	buf []byte
	r,
	w int // buf[r:w] has been read and not been returned yet
}

// fill waits until at least one more byte has been read.
func (f *framer) fill() error {
	f.makeRoom()
	for {
		n, err := f.src.Read(f.buf[f.w:])
		f.w += n
		if n > 0 {
			return nil // the next call returns the error again
		}
		if err != nil {
			return err
		}
	}
}

// makeRoom makes space behind w. The buffer doubles for a message that does not fit, so that
// reading a large message takes linear time.
func (f *framer) makeRoom() {
	pending := f.buf[f.r:f.w]
	if len(pending) == 0 && len(f.buf) == readLen {
		f.r, f.w = 0, 0
		return
	}
	if len(f.buf)-f.w >= readLen/2 {
		return
	}
	size := max(readLen, 2*len(pending))
	buf := f.buf
	if size != len(buf) {
		buf = make([]byte, size)
	}
	f.w = copy(buf, pending)
	f.r, f.buf = 0, buf
}

// next returns the next message if it is complete. The message is valid until the next call of
// fill.
func (f *framer) next() (message, bool, error) {
	pending := f.buf[f.r:f.w]
	if len(pending) < headerLen {
		return nil, false, nil
	}
	length := int64(binary.BigEndian.Uint32(pending[1:]))
	if length < 4 || length > 1<<30 {
		return nil, false, fmt.Errorf("message %q has length %d", pending[0], length)
	}
	size := int(length) + 1
	if len(pending) < size {
		return nil, false, nil
	}
	f.r += size
	return pending[:size:size], true, nil
}

// rest returns all bytes that have been read, including an incomplete message.
func (f *framer) rest() []byte {
	pending := f.buf[f.r:f.w]
	f.r = f.w
	return pending
}
