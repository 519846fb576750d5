package idemhttp

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/idem-go/idem"
)

// ErrUnrecordable means that the answer of a handler cannot be recorded and sent later: it has a
// trailer, switches protocols, or has a body that does not match its Content-Length. Everything was
// rolled back.
var ErrUnrecordable = errors.New("idemhttp: the answer cannot be recorded")

var errReturned = errors.New("idemhttp: the handler has returned")

// recorder is the http.ResponseWriter of one attempt. It behaves like the writer of net/http, and
// rejects what cannot be recorded. It is locked, so that a goroutine that outlives the handler gets
// an error and not a data race.
type recorder struct {
	filter *headerFilter
	limit  int         // Config.MaxResponse
	base   http.Header // the header of the client's writer, as outer middleware has set it

	mu        sync.Mutex
	header    http.Header // what Header returns; nil until it is called
	status    int         // 0 until it is set
	replaced  int         // the status of the answer that a later 5xx has replaced, or 0
	second    int         // the first later status that was ignored, or 0
	declared  int         // the Content-Length, or -1
	offered   int         // bytes of body that the handler has tried to write
	sniffs    bool        // net/http would detect the Content-Type
	body      []byte
	bound     int                 // an upper bound of the size of the recorded header
	recorded  map[string][]string // header fields that are recorded
	firstOnly map[string][]string // header fields that only the first caller gets
	err       error               // why the answer cannot be recorded
	closed    bool
}

// Header returns the header of the answer. At first it has the fields that outer middleware has
// set. The handler may change or delete them.
func (r *recorder) Header() http.Header {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.header == nil && len(r.base) > 0 && !r.closed {
		r.header = r.base.Clone()
	}
	if r.header == nil {
		r.header = http.Header{}
	}
	return r.header
}

// touched reports whether the handler has begun to answer.
func (r *recorder) touched() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.status != 0 || r.header != nil
}

// WriteHeader sets the status and takes the header as it is now. It ignores informational statuses.
// Later calls are ignored as well, except for a 5xx after another answer: nothing has been sent
// yet, so the failure replaces the answer.
func (r *recorder) WriteHeader(status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.writeHeader(status)
}

func (r *recorder) writeHeader(status int) {
	switch {
	case r.closed:
		return
	case r.status != 0:
		r.writeHeaderAgain(status)
		return
	case status < 100 || status > 999:
		panic(fmt.Sprintf("invalid WriteHeader code %v", status))
	case status == http.StatusSwitchingProtocols:
		r.refuse("it switches protocols, which could not be replayed")
	case status < 200:
		return // not sent: the attempt may be rolled back
	}
	r.status = status
	r.takeHeader()
	r.bound = r.headerBound()
}

func (r *recorder) writeHeaderAgain(status int) {
	switch {
	case status < 200:
	case status >= http.StatusInternalServerError && r.status < http.StatusInternalServerError:
		r.replaced, r.status = r.status, status
		r.body, r.offered, r.recorded, r.firstOnly = nil, 0, nil, nil
		r.takeHeader()
		r.declared = -1 // it belonged to the replaced answer
		delete(r.recorded, "Content-Length")
		r.bound = r.headerBound()
	case r.second == 0:
		r.second = status
	}
}

// Write appends to the body. It fails if the answer exceeds Config.MaxResponse.
func (r *recorder) Write(p []byte) (int, error) { return write(r, p) }

func (r *recorder) WriteString(s string) (int, error) { return write(r, s) }

func write[T []byte | string](r *recorder, p T) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.admit(len(p))
	if err == nil {
		r.body = append(r.body, p...)
		err = r.checkSize()
	}
	if err != nil {
		return 0, err
	}
	return len(p), nil
}

// admit returns an error if n more bytes cannot be appended to the body.
func (r *recorder) admit(n int) error {
	if r.closed {
		return errReturned
	}
	if r.status == 0 {
		r.writeHeader(http.StatusOK)
	}
	switch {
	case n == 0:
		return nil
	case !bodyAllowed(r.status):
		return http.ErrBodyNotAllowed
	}
	r.offered += n // as in net/http, rejected bytes count as well
	if r.declared >= 0 && r.offered > r.declared {
		return http.ErrContentLength
	}
	if r.err == nil && len(r.body)+n > r.limit { // checkSize would report it too, but after the append
		r.err = &idem.ResponseTooLargeError{Size: len(r.body) + n, Limit: r.limit}
	}
	return r.err
}

// takeHeader sorts the fields of the header: those that are recorded, and those that only the first
// caller gets. A field that the handler has not changed since outer middleware set it is neither,
// because outer middleware sets it on every answer.
func (r *recorder) takeHeader() {
	r.declared = -1
	if r.header == nil {
		r.sniffs = untyped(r.base)
		return
	}
	r.sniffs = untyped(r.header)
	r.recorded = make(map[string][]string, len(r.header))
	connection := r.header["Connection"]
	copied := copier(r.header)
	for name, values := range r.header {
		switch before, ok := r.base[name]; {
		case ok && slices.Equal(values, before):
		case isTrailer(name) && len(values) > 0:
			r.refuse("it has a trailer, which could not be replayed")
		case name == "Content-Length" && !r.declare(values):
		default:
			r.take(name, copied(values), connection)
		}
	}
	for name := range r.base {
		if _, ok := r.header[name]; !ok {
			r.take(name, nil, connection)
		}
	}
}

// copier returns a function that copies values of header into one shared array.
func copier(header http.Header) func([]string) []string {
	n := 0
	for _, values := range header {
		n += len(values)
	}
	array := make([]string, 0, n)
	return func(values []string) []string {
		start := len(array)
		array = append(array, values...)
		return array[start:len(array):len(array)]
	}
}

func (r *recorder) take(name string, values, connection []string) {
	if r.filter.records(name, connection) {
		r.recorded[name] = values
		return
	}
	if r.firstOnly == nil {
		r.firstOnly = map[string][]string{}
	}
	r.firstOnly[name] = values
}

// declare sets the length from the values of Content-Length, and reports whether they are valid. As
// in net/http, an invalid length is dropped.
func (r *recorder) declare(values []string) bool {
	if len(values) == 0 {
		return true
	}
	n, err := strconv.ParseInt(values[0], 10, 64)
	if err != nil || n < 0 {
		return false
	}
	r.declared = int(n)
	return true
}

// finish closes the recorder and returns the answer, or the error that keeps it from being
// recorded. head says that the answer is to a HEAD request.
func (r *recorder) finish(head bool) (idem.Response, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.status == 0 {
		r.writeHeader(http.StatusOK)
	}
	for name := range r.header {
		if strings.HasPrefix(name, http.TrailerPrefix) && r.base[name] == nil {
			r.refuse("it has a trailer, which could not be replayed")
		}
	}
	if r.declared >= 0 && r.declared != len(r.body) && bodyAllowed(r.status) && !head {
		r.refuse(fmt.Sprintf("its Content-Length is %d, but its body has %d bytes", r.declared, len(r.body)))
	}
	r.sniff()
	_ = r.checkSize()
	r.closed = true
	return idem.Response{Status: r.status, Header: r.recorded, Body: r.body}, r.err
}

// close makes all later writes fail.
func (r *recorder) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
}

// sniff sets the Content-Type that net/http would detect from the body, so that it is recorded.
func (r *recorder) sniff() {
	if !r.sniffs || len(r.body) == 0 || !bodyAllowed(r.status) {
		return
	}
	if r.recorded == nil {
		r.recorded = make(map[string][]string, 1)
	}
	r.recorded["Content-Type"] = []string{http.DetectContentType(r.body)}
}

// hasRefused reports whether err wraps the error that the recorder has returned to the handler.
func (r *recorder) hasRefused(err error) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err != nil && errors.Is(err, r.err)
}

func (r *recorder) refuse(reason string) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s", ErrUnrecordable, reason)
	}
}

// untyped reports whether net/http would detect the Content-Type from the body.
func untyped(header http.Header) bool {
	_, typed := header["Content-Type"]
	return !typed && header.Get("Content-Encoding") == "" && header.Get("Transfer-Encoding") == ""
}

func isTrailer(name string) bool {
	return name == "Trailer" || strings.HasPrefix(name, http.TrailerPrefix)
}

func bodyAllowed(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}

// The methods that http.ResponseController looks for. They are not possible before the COMMIT, and
// return an error that says so. The recorder has no Unwrap, which would expose the connection, and
// no Flush, which cannot return an error.

var errBuffered = fmt.Errorf("idemhttp: the answer is sent after the commit: %w", http.ErrNotSupported)

// FlushError returns an error.
func (r *recorder) FlushError() error { return errBuffered }

// Hijack returns an error.
func (r *recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) { return nil, nil, errBuffered }

// SetReadDeadline returns an error.
func (r *recorder) SetReadDeadline(time.Time) error { return errBuffered }

// SetWriteDeadline returns an error.
func (r *recorder) SetWriteDeadline(time.Time) error { return errBuffered }

// EnableFullDuplex returns an error.
func (r *recorder) EnableFullDuplex() error { return errBuffered }
