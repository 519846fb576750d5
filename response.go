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

	"github.com/idem-go/idem/internal/bridge"
	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/display"
)

// Response is the answer of an execution. Duplicates of the call get the same answer, byte for
// byte. Over HTTP it is the status code, the header fields worth repeating, and the body.
type Response struct {
	Status int
	Header map[string][]string
	Body   []byte
}

// Result is what a call returns: the response of the committed execution, and facts about it.
type Result struct {
	Response

	// Replayed is true if another execution, earlier or concurrent, recorded the response. If it is
	// false, fn ran in this call and its effect is committed. After DoTx the effect is committed
	// with the caller's transaction.
	Replayed bool

	// Rejected is true if fn returned the error of Reject: its writes were rolled back, but its
	// response is recorded and final.
	Rejected bool

	// ExecutionID is the id of the execution.
	ExecutionID string

	// CreatedAt is when the execution claimed the key. CompletedAt is when it recorded its
	// response. The key counts as new from ExpiresAt on. All three are by the clock of the
	// database.
	CreatedAt, CompletedAt, ExpiresAt time.Time
}

// Sealer encrypts data before it is stored, and decrypts it. Package seal provides a Sealer. A
// Sealer must be safe for concurrent use. It must not call a server, because it is called inside
// open transactions and in every replay.
type Sealer interface {
	// Seal returns plain in encrypted form, and the id of the encryption key: up to 255 bytes of
	// text that need not be secret. The encrypted form can be decrypted only with the same bound,
	// which identifies the record. If Seal returns an empty id, plain is stored unencrypted.
	Seal(plain, bound []byte) (keyID string, sealed []byte, err error)

	// Open returns the plaintext. If keyID is empty, sealed was stored unencrypted. Open then
	// returns sealed, or an error if unencrypted data is not acceptable. Open changes neither
	// sealed nor bound.
	Open(keyID string, sealed, bound []byte) ([]byte, error)
}

// rejection is the error that Reject returns.
type rejection struct{ response Response }

func (*rejection) Error() string { return "idem: rejected" }

// Rejection returns the response, and makes r a bridge.Rejecter.
func (r *rejection) Rejection() bridge.Response { return bridge.Response(r.response) }

// Reject returns an error for fn to return when its answer is final but its writes must not be
// committed. For example, a payment is declined, or an order can never be filled. Do rolls the
// writes back, records resp, and returns it to this call and to every duplicate, with
// Result.Rejected set and no error. If the answer may differ next time, return an ordinary error,
// which leaves the key free.
//
// Do first rolls back the transaction of fn, and then records the rejection in a second
// transaction. If that fails, Do tries again to record the rejection, as often as WithRetries says,
// without running fn again. If another call executes with the key in between, this call replays the
// response of that execution. If the rejection cannot be recorded, Do returns the error and the key
// is free: another call runs fn.
func Reject(resp Response) error { return &rejection{resp} }

// normal returns r in the form in which a replay returns it: an empty Body or Header is nil, and
// the values of a header field are never nil.
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

// encodeHeader returns the header in its stored form, nil if there is none. A replay must be exact,
// so encodeHeader returns an error for text that jsonb refuses or that JSON would silently replace.
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

// check returns the encoded header. It returns an error if the response cannot be stored within
// limit bytes.
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

// answerFrom returns the result of a call for the record r of its key. r was loaded or just
// written. own is the key with the hash and the execution id of this call.
func answerFrom(r *db.Record, key string, own *db.Key, sealer Sealer) (Result, error) {
	switch {
	case !r.SameHash:
		return Result{}, &MismatchError{Key: display.Key(key), CreatedAt: r.CreatedAt}
	case r.State == db.Processing:
		return Result{}, fmt.Errorf("%w: an earlier execution of key %s ended its own transaction; check its writes, then delete the record",
			ErrTxEnded, display.Key(key))
	}
	if err := r.Open(own, sealer); err != nil {
		return Result{}, &UnreadableError{Key: display.Key(key), ExecutionID: r.ExecutionID, SealedBy: r.SealedBy, Err: err}
	}
	return Result{
		Response: Response{Status: r.Status, Header: r.Header, Body: r.Body},
		Replayed: r.ExecutionID != own.ExecutionID, Rejected: r.State == db.Failed, ExecutionID: r.ExecutionID,
		CreatedAt: r.CreatedAt, CompletedAt: r.CompletedAt, ExpiresAt: r.ExpiresAt,
	}, nil
}
