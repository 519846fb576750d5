package idem

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/idem-go/idem/internal/abridge"
	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/longcall"
)

// Response is what an execution answers and what its duplicates are given again, byte for byte. Its meaning is the
// caller's: over HTTP, the status code, the header fields worth repeating and the body.
type Response struct {
	Status int
	Header map[string][]string
	Body   []byte
}

// Result is the answer to one call: the response of the one committed execution, and where it comes from.
type Result struct {
	Response

	// Replayed is true if the response was recorded by an earlier or concurrent execution. If it is false, fn ran in this
	// call and its effect is committed (by DoTx: will be committed with the caller's transaction).
	Replayed bool

	// Rejected is true if the execution ended with Reject: its effect was undone and the response is final all the same.
	Rejected bool

	// ExecutionID names the execution.
	ExecutionID string

	// CreatedAt is when the execution claimed the key, CompletedAt when it recorded its response, and ExpiresAt from when the
	// key counts as new. All three are times of the database's clock.
	CreatedAt, CompletedAt, ExpiresAt time.Time
}

// Sealer encrypts what is kept and decrypts it again. Package seal has one. It is safe for concurrent use, and asks no server: it
// works inside a transaction, and in every replay.
type Sealer interface {
	// Seal returns plain in a form that only Open reads, and the id of the key for it: up to 255 bytes of text that is no
	// secret. What it returns opens only beside the same bytes of bound. An empty id says that plain is to be kept as it is.
	Seal(plain, bound []byte) (keyID string, sealed []byte, err error)

	// Open returns what Seal was given. An empty key id asks whether what was kept as it is may pass; then Open returns it, or an
	// error. It changes neither sealed nor bound.
	Open(keyID string, sealed, bound []byte) ([]byte, error)
}

// rejection is the error that Reject makes.
type rejection struct{ response Response }

func (*rejection) Error() string { return "idem: rejected" }

// Rejection returns the answer, for package operation.
func (r *rejection) Rejection() longcall.Response { return longcall.Response(r.response) }

// Reject returns an error for fn to return when the answer is final but its writes must not stay: a payment that is
// declined, an order that can never be filled. Do rolls fn's writes back, records resp, and gives it to this call and to
// every duplicate with Result.Rejected set and no error. An answer that may differ next time should be an ordinary error:
// that leaves the key free.
//
// Do ends fn's transaction first and records the rejection in a second one. If that does not work at first, the recording is
// tried again, as often as WithRetries says, and fn is not run again. If another caller executes the key in between, its
// outcome is the one that counts, and this call replays it. If the recording fails for good, its error is returned and the
// key is free: another call runs fn.
func Reject(resp Response) error { return &rejection{resp} }

// normal returns r in the form in which a replay will show it: what is empty is nil.
func (r Response) normal() Response {
	if len(r.Body) == 0 {
		r.Body = nil
	}
	if len(r.Header) == 0 {
		r.Header = nil
		return r
	}
	if slices.ContainsFunc(slices.Collect(maps.Values(r.Header)), func(v []string) bool { return v == nil }) {
		r.Header = maps.Clone(r.Header)
		for name, values := range r.Header {
			if values == nil {
				r.Header[name] = []string{}
			}
		}
	}
	return r
}

func (r Response) clone() Response {
	r.Body = bytes.Clone(r.Body)
	header := r.Header
	if header != nil {
		r.Header = make(map[string][]string, len(header))
		for name, values := range header {
			r.Header[name] = slices.Clone(values)
		}
	}
	return r
}

// encodeHeader returns the header as it is stored, nil if there is none. Text that jsonb would refuse or that JSON would
// silently replace is an error: a replay is exact or it is nothing.
func (r Response) encodeHeader() ([]byte, error) {
	if len(r.Header) == 0 {
		return nil, nil
	}
	for name, values := range r.Header {
		if !storable(name) || slices.ContainsFunc(values, func(v string) bool { return !storable(v) }) {
			return nil, fmt.Errorf("%w: a header is not valid UTF-8 or holds a NUL", ErrInvalidResponse)
		}
	}
	return db.EncodeHeader(r.Header)
}

func storable(s string) bool { return utf8.ValidString(s) && !strings.Contains(s, "\x00") }

// check returns the encoded header of a response that can be stored within limit bytes.
func (r Response) check(limit int) ([]byte, error) {
	if r.Status < math.MinInt32 || r.Status > math.MaxInt32 {
		return nil, fmt.Errorf("%w: status %d is beyond 32 bits", ErrInvalidResponse, r.Status)
	}
	header, err := r.encodeHeader()
	if err != nil {
		return nil, err
	}
	if size := len(header) + len(r.Body); size > limit {
		return nil, &ResponseTooLargeError{Size: size, Limit: limit}
	}
	return header, nil
}

// answerFrom turns the record of a key into what the caller is told for whom it was loaded, or made.
func answerFrom(r *db.Record, key string, own *db.Key, sealer Sealer) (Result, error) {
	switch {
	case !r.SameHash:
		return Result{}, &MismatchError{Key: abridge.Key(key), CreatedAt: r.CreatedAt}
	case r.State == db.Processing:
		return Result{}, fmt.Errorf("%w: an earlier fn for key %s did, without a response; see to its effect, then remove the record",
			ErrTxEnded, abridge.Key(key))
	}
	if err := r.Open(own, sealer); err != nil {
		return Result{}, &UnreadableError{Key: abridge.Key(key), ExecutionID: r.ExecutionID, SealedBy: r.SealedBy, Err: err}
	}
	return Result{
		Response: Response{Status: r.Status, Header: r.Header, Body: r.Body},
		Replayed: r.ExecutionID != own.ExecutionID, Rejected: r.State == db.Failed, ExecutionID: r.ExecutionID,
		CreatedAt: r.CreatedAt, CompletedAt: r.CompletedAt, ExpiresAt: r.ExpiresAt,
	}, nil
}
