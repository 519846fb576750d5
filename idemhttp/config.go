package idemhttp

import (
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
)

// Config configures a Middleware. Only Scope is required.
type Config struct {
	// Scope returns a name for the caller and the operation, for example idem.Scope(tenant, "POST
	// /orders"). Anyone who knows scope, key and request gets the recorded answer. So identify the
	// caller by verified credentials. Use the principal and not the credential itself: a retry
	// after a rotation is still a retry. An error is answered with 403, or with the *Problem in it.
	//
	// Scope is called first, before the body is read. It gets a copy of the request and may read
	// the body, up to MaxBody. The fingerprint and the handler still get the whole body. A Scope
	// that does not read the body can reject an unknown caller at less cost.
	//
	// Scope is required.
	Scope func(r *http.Request) (string, error)

	// Header is the name of the header field with the key. The default is Idempotency-Key.
	Header string

	// EchoKey sends the key back in the same field of every answer.
	EchoKey bool

	// Optional accepts requests without a key. The handler then runs in a transaction, and Decide
	// decides about its writes, but nothing is recorded. By default such a request is rejected with
	// 400.
	Optional bool

	// Methods are the methods that need a key. Under Wrap, a request with another method passes
	// through unchanged. Under Handle, it gets a transaction and no key. The default is POST and
	// PATCH.
	Methods []string

	// Fingerprint returns a hash that identifies the request. body is the whole body. The default
	// is DefaultFingerprint. The zero Hash without an error is answered with 500: see
	// idem.ErrInvalidHash.
	Fingerprint func(r *http.Request, body []byte) (idem.Hash, error)

	// Without are JSON pointers to values that the default Fingerprint ignores in JSON bodies,
	// because they differ in every attempt, such as "/client_time". See idem.Without.
	Without []string

	// MaxBody limits the request body, in bytes. A larger body is rejected with 413. The body is
	// held in memory. The default is 1 MiB.
	MaxBody int64

	// Decide returns, for the status of an answer, whether the answer is recorded and whether the
	// writes of the handler are committed. By default, a status below 400 is Commit; 401, 408, 409,
	// 423, 425, 429 and 5xx are Forget; any other 4xx is Undo.
	Decide func(status int) Decision

	// RecordHeader are the names of the header fields that are recorded. The default is all fields,
	// except those that are never recorded: Set-Cookie and other secrets, and fields of one
	// connection or one exchange. Fields that are not recorded are sent only to the first caller.
	RecordHeader []string

	// Authorize is called before every replay. It decides whether this caller may get this answer,
	// for example because a permission was revoked meanwhile. It must not change result. An error
	// is answered with 403, or with the *Problem in it, and nothing of the recorded answer is sent.
	Authorize func(r *http.Request, result idem.Result) error

	// ReplayedHeader is the name of the header field that is "true" in a replay. The default is
	// Idempotency-Replayed.
	ReplayedHeader string

	// Statuses are the status codes of problems. The defaults are those of the IETF draft.
	Statuses Statuses

	// Render writes a problem. The default is Problem.ServeHTTP.
	Render func(w http.ResponseWriter, r *http.Request, p *Problem)

	// Logger logs the cause of every problem that is not the client's fault, and where it arose.
	// Answers of the handler are not logged, unless it answers twice. A key is never logged in
	// full. The default is slog.Default().
	Logger *slog.Logger

	// The following fields are options of idem.Do. See the option of the same name. The zero value
	// selects the default of idem.Do.

	TTL time.Duration

	// Wait should be well below http.Server.WriteTimeout and the timeout of a proxy: a duplicate
	// that is cut off while it waits gets no answer. With a negative Wait, a duplicate is answered
	// at once.
	Wait time.Duration

	Retries   int // negative: no retries
	TxOptions pgx.TxOptions

	// Through is idemsql.Through(db), for handlers that use database/sql. idemsql.SQLTx then
	// returns the *sql.Tx of the transaction, also for a request without a key. Operations do not
	// use it.
	Through idem.Option

	// MaxResponse limits an answer, in bytes: the body plus the recorded header fields as JSON. The
	// limit applies to every answer, recorded or not. A Write that would exceed it fails with
	// idem.ErrResponseTooLarge. Then the client gets 500 and nothing is committed, whatever the
	// handler does after that. The default is 1 MiB.
	MaxResponse int

	// Name and Observer also apply to requests without a key. idem.Observers combines several
	// observers.
	Name     string
	Observer idem.Observer

	// Sealer encrypts recorded answers at rest. A recorded answer that it cannot open is answered
	// with 500, and the log has the cause.
	Sealer idem.Sealer
}

// Decision says whether the writes of a handler are committed, and whether its answer is recorded.
type Decision int

const (
	// Forget rolls the writes back and records nothing. The key is free, and a repetition executes.
	Forget Decision = iota

	// Undo rolls the writes back and records the answer, which is final.
	Undo

	// Commit commits the writes together with the answer.
	Commit
)

// defaultDecide records answers that would be the same next time. A 4xx is not recorded if it asks
// for the same request again: with a credential (401), or later.
var defaultDecide = decider(Undo, Forget, http.StatusUnauthorized, http.StatusRequestTimeout, http.StatusConflict,
	http.StatusLocked, http.StatusTooEarly, http.StatusTooManyRequests)

// decider returns a Config.Decide: Forget for a status in forget, otherwise Commit below 400,
// rejected below 500, and failed above.
func decider(rejected, failed Decision, forget ...int) func(status int) Decision {
	return func(status int) Decision {
		switch {
		case slices.Contains(forget, status):
			return Forget
		case status < 400:
			return Commit
		case status < 500:
			return rejected
		}
		return failed
	}
}

// StripeConfig returns a Config that behaves like Stripe's API v1. The key is optional, and only a
// POST has one. A key that is reused for another request is a 400. A replay has the header
// Idempotent-Replayed. Every answer of a handler is recorded, also a 500, except 401, 409 and 429,
// which Stripe sends before an operation begins. The writes of a recorded answer of 400 or more are
// rolled back. Scope must still be set.
//
// The zero Config follows the IETF's draft-ietf-httpapi-idempotency-key-header-07 instead.
func StripeConfig() Config {
	return Config{
		Optional:       true,
		Methods:        []string{http.MethodPost},
		ReplayedHeader: "Idempotent-Replayed",
		Statuses:       Statuses{KeyReused: http.StatusBadRequest},
		Decide:         decider(Undo, Undo, http.StatusUnauthorized, http.StatusConflict, http.StatusTooManyRequests),
	}
}

// StripeV2Config returns a Config that behaves like Stripe's API v2. It differs from
// [StripeConfig]: DELETE has a key, too. Only a success is recorded, for 30 days. Its repetition
// gets the recorded answer, where Stripe returns an updated one. A repetition of a failed request
// runs the handler again. Work that a failed request must keep, such as a call of another system,
// belongs in an operation: see [Operate].
func StripeV2Config() Config {
	config := StripeConfig()
	config.Methods = []string{http.MethodPost, http.MethodDelete}
	config.TTL = 30 * 24 * time.Hour
	config.Decide = decider(Forget, Forget)
	return config
}
