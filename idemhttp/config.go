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
	// /orders"). Anyone who sends the same scope, key and request gets the recorded answer. So
	// identify the caller by verified credentials. Use the principal and not the credential itself:
	// a retry after a rotation of the credential must have the same scope. If Scope returns an
	// error, the answer is the *Problem in the error, 503 for a transient error, and otherwise 403.
	//
	// Scope is called before the middleware reads the key and the body. It gets a copy of the
	// request and may read the body, up to MaxBody. The fingerprint and the handler still get the
	// whole body. A Scope that does not read the body can reject an unknown caller at less cost.
	//
	// Scope is required.
	Scope func(r *http.Request) (string, error)

	// Header is the name of the header field with the key. The default is Idempotency-Key.
	Header string

	// EchoKey sends the key back with every answer, in the header field that Header names.
	EchoKey bool

	// Optional accepts requests without a key. The handler of such a request runs in a transaction,
	// which is committed only if Decide returns Commit. The answer is not recorded. By default, a
	// request without a key is rejected with 400.
	Optional bool

	// Methods lists the HTTP methods that need a key. Middleware.Wrap passes a request with another
	// method through unchanged. Middleware.Handle runs the handler of such a request in a
	// transaction and ignores the key. The default is POST and PATCH.
	Methods []string

	// Fingerprint returns a hash that identifies the request. body is the whole body. The default
	// is DefaultFingerprint. If Fingerprint returns the zero Hash and no error, the client gets
	// 500: see idem.ErrInvalidHash.
	Fingerprint func(r *http.Request, body []byte) (idem.Hash, error)

	// Without lists JSON pointers, such as "/client_time", to values that differ in every attempt.
	// The default Fingerprint ignores these values in JSON bodies. See idem.Without.
	Without []string

	// MaxBody limits the request body, in bytes. A larger body is rejected with 413. The body is
	// held in memory. The default is 1 MiB.
	MaxBody int64

	// Decide returns, for the status of an answer, whether the answer is recorded and whether the
	// writes of the handler are committed. The default returns Commit below 400, Forget for 401,
	// 408, 409, 423, 425, 429 and 5xx, and Undo for any other 4xx.
	Decide func(status int) Decision

	// RecordHeader lists the names of the header fields that are recorded. The default is all
	// fields, except for fields that are never recorded: Set-Cookie and other secrets, and fields
	// that belong to one connection or one request, such as Connection and Date. Fields that are
	// not recorded are sent only to the first caller.
	RecordHeader []string

	// Authorize is called before every replay. It returns an error if this caller may not get this
	// answer, for example because a permission was revoked meanwhile. The client then gets the
	// *Problem in the error, 503 for a transient error, and otherwise 403, and nothing of the
	// recorded answer. Authorize must not change result.
	Authorize func(r *http.Request, result idem.Result) error

	// ReplayedHeader is the name of the header field that is "true" in a replay. The default is
	// Idempotency-Replayed.
	ReplayedHeader string

	// Statuses sets the status codes of problems. The default codes are those of the IETF draft.
	Statuses Statuses

	// Render writes a problem. The default is Problem.ServeHTTP.
	Render func(w http.ResponseWriter, r *http.Request, p *Problem)

	// Logger logs the cause of every problem that the client has not caused, and where the problem
	// arose. Answers of a handler are not logged, unless the handler answers twice. A key is never
	// logged in full. The default is slog.Default().
	Logger *slog.Logger

	// Each of the following fields sets the option of idem.Do with the same name: for example, TTL
	// sets idem.WithTTL. The zero value of a field selects the default of idem.Do.

	TTL time.Duration

	// Wait is how long a duplicate waits for the first request. It should be well below
	// http.Server.WriteTimeout and the timeout of a proxy: a duplicate that is cut off while it
	// waits gets no answer. With a negative Wait, a duplicate is answered at once.
	Wait time.Duration

	Retries   int // negative: no retries
	TxOptions pgx.TxOptions

	// Through is idemsql.Through(db), for handlers that use database/sql. idemsql.SQLTx then
	// returns the *sql.Tx of the handler, also for a request without a key. Handlers of Operate do
	// not use Through.
	Through idem.Option

	// MaxResponse limits an answer, in bytes: the body plus the recorded header fields as JSON. The
	// limit applies to every answer, recorded or not. A Write that would exceed the limit fails
	// with idem.ErrResponseTooLarge. Then the client gets 500 and nothing is committed, whatever
	// the handler does after the failed Write. The default is 1 MiB.
	MaxResponse int

	// Name and Observer also apply to requests without a key. idem.Observers combines several
	// observers.
	Name     string
	Observer idem.Observer

	// Sealer encrypts recorded answers at rest. If the Sealer cannot decrypt a recorded answer, the
	// client gets 500, and the cause is logged.
	Sealer idem.Sealer
}

// Decision says whether the writes of a handler are committed, and whether its answer is recorded.
type Decision int

const (
	// Forget rolls the writes back and records nothing. The key is free again, and a repetition
	// runs the handler.
	Forget Decision = iota

	// Undo rolls the writes back and records the answer. A repetition gets this answer.
	Undo

	// Commit commits the writes together with the answer.
	Commit
)

// defaultDecide records every answer below 500, except for statuses that ask the client to send the
// same request again: with a credential (401), or later (all others in the list).
var defaultDecide = decider(Undo, Forget, http.StatusUnauthorized, http.StatusRequestTimeout, http.StatusConflict,
	http.StatusLocked, http.StatusTooEarly, http.StatusTooManyRequests)

// decider returns a function for Config.Decide. For a status in the list forget, the function
// returns Forget. For any other status it returns Commit below 400, the argument rejected from 400
// on, and the argument failed from 500 on.
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

// StripeConfig returns a Config that behaves like Stripe's API v1. Only a POST may have a key, and
// the key is optional. A key that is reused for another request is answered with 400. A replay has
// the header Idempotent-Replayed. Every answer of a handler is recorded, also a 500. The exceptions
// are 401, 409 and 429, which Stripe sends before an operation begins. If a handler answers 400 or
// more, its writes are rolled back. The caller must still set Scope.
//
// The zero Config does not follow Stripe but the IETF's
// draft-ietf-httpapi-idempotency-key-header-07.
func StripeConfig() Config {
	return Config{
		Optional:       true,
		Methods:        []string{http.MethodPost},
		ReplayedHeader: "Idempotent-Replayed",
		Statuses:       Statuses{KeyReused: http.StatusBadRequest},
		Decide:         decider(Undo, Undo, http.StatusUnauthorized, http.StatusConflict, http.StatusTooManyRequests),
	}
}

// StripeV2Config returns a Config that behaves like Stripe's API v2. It differs from [StripeConfig]
// in two ways. A DELETE may have a key, too. Only a success is recorded, for 30 days. A repetition
// of a successful request gets the recorded answer, whereas Stripe sends an updated answer. A
// repetition of a failed request runs the handler again. If a failed request must keep part of its
// work, such as a call of another system, use an operation: see [Operate].
func StripeV2Config() Config {
	config := StripeConfig()
	config.Methods = []string{http.MethodPost, http.MethodDelete}
	config.TTL = 30 * 24 * time.Hour
	config.Decide = decider(Forget, Forget)
	return config
}
