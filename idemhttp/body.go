package idemhttp

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"sync"
)

const (
	defaultMaxBody = 1 << 20
	trusted        = 64 << 10 // up to here memory is set aside for a body because it is announced; beyond, as it comes
)

// errConsumed says that the body is gone. Its fingerprint would be that of an empty body, so that another request under the same key
// would be taken for a repetition of this one.
var errConsumed = errors.New("idemhttp: the body was read before it reached the middleware, for example by FormValue in a CSRF check: " +
	"put the middleware in front, or let what reads the body put it back")

// body is the body of a request. It is read once, as far as a reader asks, and remembered for those that ask again.
type body struct {
	mu     sync.Mutex
	source io.Reader
	length int64 // as announced; not above 0 if it is unknown
	limit  int64
	read   []byte
	err    error // why there is no more: io.EOF at its end
	parsed bool  // middleware in front has read a form from it
	missed bool  // a reader was told an err that is not io.EOF
}

func (b *body) open(w http.ResponseWriter, r *http.Request, limit int64) {
	b.source, b.length, b.limit = r.Body, r.ContentLength, limit
	b.parsed = len(r.PostForm) > 0 || r.MultipartForm != nil
	switch {
	case (r.Body == nil || r.Body == http.NoBody) && b.parsed:
		b.err = errConsumed
	case r.Body == nil || r.Body == http.NoBody:
		b.err = io.EOF
	case r.ContentLength > limit:
		b.err = &http.MaxBytesError{Limit: limit}
	case r.ContentLength <= 0 || r.ContentLength > trusted:
		b.source = http.MaxBytesReader(w, r.Body, limit) // it also keeps the server from reading on
	}
}

// whole returns the body, or why it cannot be had.
func (b *body) whole() ([]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.err == nil {
		b.more()
	}
	if b.err != io.EOF {
		return nil, b.err
	}
	return b.read, nil
}

// more reads on. It asks the source until it says that it is at its end: outer middleware may have put a longer body in the
// place of the one that was announced.
func (b *body) more() {
	switch {
	case b.read != nil:
		b.read = slices.Grow(b.read, 1)
	case 0 < b.length && b.length <= trusted:
		b.read = make([]byte, 0, b.length+1)
	default:
		b.read = make([]byte, 0, 512)
	}
	n, err := b.source.Read(b.read[len(b.read):cap(b.read)])
	b.read = b.read[:len(b.read)+n]
	switch size := int64(len(b.read)); {
	case size > b.limit:
		b.err = &http.MaxBytesError{Limit: b.limit}
	case err == io.EOF && size == 0 && (b.length > 0 || b.parsed):
		b.err = errConsumed
	case err == io.EOF && size < b.length:
		b.err = io.ErrUnexpectedEOF
	default:
		b.err = err
	}
}

// readAt reads what comes after offset.
func (b *body) readAt(p []byte, offset int) (int, error) {
	for offset == len(b.read) && b.err == nil {
		b.more()
	}
	if offset < len(b.read) {
		return copy(p, b.read[offset:]), nil
	}
	b.missed = b.missed || b.err != io.EOF
	return 0, b.err
}

// failed returns why the body could not be had by a reader, or nil.
func (b *body) failed() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.missed {
		return nil
	}
	return b.err
}

// bodyReader is the body from its beginning, for one who reads it.
type bodyReader struct {
	body   *body // whose lock it shares
	offset int
	over   bool
}

func (r *bodyReader) Read(p []byte) (int, error) {
	r.body.mu.Lock()
	defer r.body.mu.Unlock()
	switch {
	case r.over:
		return 0, http.ErrBodyReadAfterClose
	case len(p) == 0:
		return 0, nil
	}
	n, err := r.body.readAt(p, r.offset)
	r.offset += n
	return n, err
}

// Close is also called when the one who reads has returned.
func (r *bodyReader) Close() error {
	r.body.mu.Lock()
	defer r.body.mu.Unlock()
	r.over = true
	return nil
}

// rewind makes it begin anew.
func (r *bodyReader) rewind() {
	r.body.mu.Lock()
	defer r.body.mu.Unlock()
	r.offset, r.over = 0, false
}
