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

	// maxPrealloc is the largest Content-Length for which memory is allocated before the body
	// arrives.
	maxPrealloc = 64 << 10
)

// errConsumed means that other code has read the body before the middleware. Without this error,
// the fingerprint would be that of an empty body, and a different request with the same key would
// get the recorded answer.
var errConsumed = errors.New("idemhttp: the body was read before it reached the middleware, for example by FormValue in a CSRF check; " +
	"put the middleware first, or let the reader put the body back")

// body buffers the body of a request, so that it can be read several times. It reads from the
// client only as far as a reader has asked for.
type body struct {
	mu     sync.Mutex
	source io.Reader
	length int64 // the Content-Length; 0 or less if unknown
	limit  int64
	read   []byte
	err    error // the error that ended the reading; io.EOF at the end of the body
	parsed bool  // outer middleware has parsed a form from the body
	missed bool  // a reader got err, and err was not io.EOF
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
	case r.ContentLength <= 0 || r.ContentLength > maxPrealloc:
		b.source = http.MaxBytesReader(w, r.Body, limit) // makes the server close the connection beyond limit
	}
}

// whole returns the whole body, or the error that kept it from being read.
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

// more reads the next bytes into the buffer, or sets b.err. It also reads beyond the
// Content-Length, because outer middleware may have replaced the body with a longer one.
func (b *body) more() {
	switch {
	case b.read != nil:
		b.read = slices.Grow(b.read, 1)
	case 0 < b.length && b.length <= maxPrealloc:
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

// readAt copies bytes of the body, from offset on, into p. If the buffer ends at offset, readAt
// first reads more from the client.
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

// reportedError returns the error that a reader got instead of the rest of the body, or nil.
func (b *body) reportedError() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.missed {
		return nil
	}
	return b.err
}

// bodyReader reads a body from its beginning.
type bodyReader struct {
	body   *body // body.mu also guards offset and closed
	offset int
	closed bool
}

func (r *bodyReader) Read(p []byte) (int, error) {
	r.body.mu.Lock()
	defer r.body.mu.Unlock()
	switch {
	case r.closed:
		return 0, http.ErrBodyReadAfterClose
	case len(p) == 0:
		return 0, nil
	}
	n, err := r.body.readAt(p, r.offset)
	r.offset += n
	return n, err
}

// Close makes Read fail. The exchange calls it when the handler returns.
func (r *bodyReader) Close() error {
	r.body.mu.Lock()
	defer r.body.mu.Unlock()
	r.closed = true
	return nil
}

// rewind makes the next Read begin at the start of the body.
func (r *bodyReader) rewind() {
	r.body.mu.Lock()
	defer r.body.mu.Unlock()
	r.offset, r.closed = 0, false
}
