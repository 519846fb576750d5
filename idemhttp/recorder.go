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

// recorder is the http.ResponseWriter of one attempt. It behaves like the writer of net/http, but
// rejects answers that cannot be recorded. A mutex guards it, so that a goroutine that outlives the
// handler gets an error and causes no data race.
type recorder struct {
	filter *headerFilter
	limit  int         // Config.MaxResponse
	base   http.Header // the header of the client's writer, as outer middleware has set it

	mu        sync.Mutex
	header    http.Header // the result of Header; nil before the first call of Header
	status    int         // 0 before the first WriteHeader or Write
	replaced  int         // the status of the answer that a later 5xx has replaced, or 0
	second    int         // the first status that WriteHeader ignored, or 0
	declared  int         // the Content-Length that the handler has set, or -1
	offered   int         // bytes of body that the handler has tried to write
	sniffs    bool        // the handler has set no Content-Type, so net/http would detect it
	body      []byte
	bound     int                 // an upper bound of the size of the recorded header
	recorded  map[string][]string // header fields that are recorded
	firstOnly map[string][]string // header fields that are not recorded, so a replay lacks them
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

// WriteHeader sets the status and copies the header. It ignores informational statuses, except for
// 101, which cannot be recorded. It also ignores every call after the first, unless the status is
// 5xx and the earlier status was below 500. Then the new status replaces the earlier answer,
// because nothing has been sent yet.
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
		r.declared = -1 // the Content-Length belonged to the replaced answer
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
	if r.err == nil && len(r.body)+n > r.limit { // checkSize would report this too, but only after the append
		r.err = &idem.ResponseTooLargeError{Size: len(r.body) + n, Limit: r.limit}
	}
	return r.err
}

// takeHeader divides the header into fields that are recorded and fields that only the first caller
// gets. It leaves out a field that outer middleware has set and the handler has not changed,
// because outer middleware sets this field on every answer.
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

// declare sets r.declared from the values of Content-Length, and reports whether the length is
// valid. As in net/http, an invalid length is dropped.
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

// finish closes the recorder and returns the answer, or the reason why the answer cannot be
// recorded. The argument head is true for a HEAD request.
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

// untyped reports whether net/http would detect the Content-Type of an answer with this header from
// its body.
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

// http.ResponseController looks for the following methods. They return errBuffered, because nothing
// is sent before the COMMIT. The recorder has no method Unwrap, because Unwrap would expose the
// connection. It has no method Flush, because Flush cannot return an error.

var errBuffered = fmt.Errorf("idemhttp: the answer is sent after the commit: %w", http.ErrNotSupported)

func (r *recorder) FlushError() error { return errBuffered }

func (r *recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) { return nil, nil, errBuffered }

func (r *recorder) SetReadDeadline(time.Time) error { return errBuffered }

func (r *recorder) SetWriteDeadline(time.Time) error { return errBuffered }

func (r *recorder) EnableFullDuplex() error { return errBuffered }
