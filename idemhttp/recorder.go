package idemhttp

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/idem-go/idem"
)

// ErrUnrecordable says that a handler answered with something that cannot be recorded and sent later: a trailer, another
// protocol, or a body that is not as long as its Content-Length. Everything was rolled back.
var ErrUnrecordable = errors.New("idemhttp: the answer cannot be recorded")

var errReturned = errors.New("idemhttp: the handler has returned")

// recorder is the http.ResponseWriter of one attempt. What it accepts it treats as net/http's own does; the rest it
// refuses. It is locked so that a goroutine that outlives the handler gets an error instead of a race.
type recorder struct {
	filter *headerFilter
	limit  int         // for the body
	base   http.Header // what is set already on the writer that the answer will go to

	mu       sync.Mutex
	header   http.Header // the handler's to change; nil until it asks for it
	status   int         // 0 until it is known
	failed   int         // the status of the answer in whose place a failure behind it is, or 0
	second   int         // the first status behind the answer that does not count, or 0
	declared int         // what Content-Length says, or -1
	offered  int         // bytes of body that the handler has tried to write
	sniffs   bool
	body     []byte
	bound    int                 // no encoding of the recorded header is longer
	recorded map[string][]string // to be recorded
	passing  map[string][]string // for the first caller alone
	err      error               // why this answer cannot be recorded
	over     bool
}

// Header returns the header as the handler sees it: with what outer middleware has set, to be changed or deleted.
func (r *recorder) Header() http.Header {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.header == nil && len(r.base) > 0 && !r.over {
		r.header = r.base.Clone()
	}
	if r.header == nil {
		r.header = http.Header{}
	}
	return r.header
}

// touched reports whether the handler has answered, or has begun to.
func (r *recorder) touched() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.status != 0 || r.header != nil
}

// WriteHeader takes the first status that is not informational, and the header as it is at that moment. A status of 5xx behind another answer
// says that the handler has failed, and takes its place: nothing has been sent.
func (r *recorder) WriteHeader(status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.writeHeader(status)
}

func (r *recorder) writeHeader(status int) {
	switch {
	case r.over:
		return
	case r.status != 0:
		r.writeHeaderAgain(status)
		return
	case status < 100 || status > 999:
		panic(fmt.Sprintf("invalid WriteHeader code %v", status))
	case status == http.StatusSwitchingProtocols:
		r.refuse("it switches protocols")
	case status < 200:
		return // an answer is complete without it, and it may be for an attempt that is undone
	}
	r.status = status
	r.takeHeader()
	r.bound = r.headerBound()
}

func (r *recorder) writeHeaderAgain(status int) {
	switch {
	case status < 200:
	case status >= http.StatusInternalServerError && r.status < http.StatusInternalServerError:
		r.failed, r.status = r.status, status
		r.body, r.offered, r.recorded, r.passing = nil, 0, nil, nil
		r.takeHeader()
		r.declared = -1 // it was that of the other answer
		delete(r.recorded, "Content-Length")
		r.bound = r.headerBound()
	case r.second == 0:
		r.second = status
	}
}

// Write adds to the body. It fails if the answer gets larger than Config.MaxResponse.
func (r *recorder) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.admit(len(p)); err != nil {
		return 0, err
	}
	r.body = append(r.body, p...)
	return r.taken(len(p))
}

// WriteString is Write.
func (r *recorder) WriteString(s string) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.admit(len(s)); err != nil {
		return 0, err
	}
	r.body = append(r.body, s...)
	return r.taken(len(s))
}

// admit tells why n more bytes of the body cannot be taken.
func (r *recorder) admit(n int) error {
	if r.over {
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
	r.offered += n // as in net/http, also what is refused counts
	if r.declared >= 0 && r.offered > r.declared {
		return http.ErrContentLength
	}
	if r.err == nil && len(r.body)+n > r.limit { // checkSize would find it as well, after they have taken memory
		r.err = &idem.ResponseTooLargeError{Size: len(r.body) + n, Limit: r.limit}
	}
	return r.err
}

// taken says that n bytes were taken, unless the header leaves no room for them. Then the answer is refused as a whole.
func (r *recorder) taken(n int) (int, error) {
	if err := r.checkSize(); err != nil {
		return 0, err
	}
	return n, nil
}

// takeHeader sorts the fields of the header into those that are recorded, those that are for the first caller alone, and
// those that outer middleware has set and the handler has left alone, which every answer gets anyway.
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
			r.refuse("it has a trailer")
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

// copier returns a function that copies values of header. All copies share one array.
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
	if r.passing == nil {
		r.passing = map[string][]string{}
	}
	r.passing[name] = values
}

// declare takes the length that Content-Length announces. As in net/http, one that is none does not count.
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

// finish closes the recorder and returns the answer.
func (r *recorder) finish(head bool) (idem.Response, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.status == 0 {
		r.writeHeader(http.StatusOK)
	}
	for name := range r.header {
		if strings.HasPrefix(name, http.TrailerPrefix) && r.base[name] == nil {
			r.refuse("it has a trailer")
		}
	}
	if r.declared >= 0 && r.declared != len(r.body) && bodyAllowed(r.status) && !head {
		r.refuse(fmt.Sprintf("its Content-Length is %d and its body has %d bytes", r.declared, len(r.body)))
	}
	r.sniff()
	_ = r.checkSize()
	r.over = true
	return idem.Response{Status: r.status, Header: r.recorded, Body: r.body}, r.err
}

// close makes the recorder refuse everything.
func (r *recorder) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
}

// sniff adds the Content-Type that net/http would make out from the body as it is, so that it is recorded.
func (r *recorder) sniff() {
	if !r.sniffs || len(r.body) == 0 || !bodyAllowed(r.status) {
		return
	}
	if r.recorded == nil {
		r.recorded = make(map[string][]string, 1)
	}
	r.recorded["Content-Type"] = []string{http.DetectContentType(r.body)}
}

// hasRefused reports whether err is the error that this writer has returned.
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

// untyped reports whether net/http would look at the body to find its Content-Type.
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
