package idemhttp

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
)

// Config says how a Middleware behaves. Only Scope has to be set.
type Config struct {
	// Scope says who is calling and which operation: idem.Scope(tenant, "POST /orders"), say. Take who from what the request
	// proves, such as its credential, and as the principal, not the credential itself: after a rotation, a retry is still a
	// retry. A caller that has the scope, the key and the request is given the answer. An error is 403, or the *Problem that it is.
	//
	// Scope is asked first, before the body is read. It has a copy of the request and may read its body, up to MaxBody: the
	// fingerprint and the handler still have the whole. A Scope that need not read it refuses a stranger at less cost.
	//
	// Scope is required.
	Scope func(r *http.Request) (string, error)

	// Header is the name of the header field that has the key. The default is Idempotency-Key.
	Header string

	// EchoKey sends the key of a request back with its answer, in the same field, whatever the answer is.
	EchoKey bool

	// Optional lets a request without a key through. Its handler runs in a transaction as well and Decide decides about it,
	// but nothing is recorded. By default such a request is refused with 400.
	Optional bool

	// Methods are those that need a key. Under Wrap others pass through, untouched; under Handle they have a transaction
	// and no key. The default is POST and PATCH.
	Methods []string

	// Fingerprint tells whether two requests are the same. The default is DefaultFingerprint. body is the whole body. The zero
	// Hash without an error is answered 500: idem.ErrInvalidHash.
	Fingerprint func(r *http.Request, body []byte) (idem.Hash, error)

	// Without are JSON pointers to what differs in every attempt and does not matter, such as "/client_time": see
	// idem.Without. They are for the default Fingerprint, and for bodies in JSON.
	Without []string

	// MaxBody limits the body of a request, in bytes: above it, 413. The body is held in memory. The default is 1 MiB.
	MaxBody int64

	// Decide says by the status of an answer whether it is remembered, and whether the handler's writes are committed. By default, below 400 is
	// Commit; 401, 408, 409, 423, 425, 429 and 5xx are Forget; the rest of 4xx is Undo.
	Decide func(status int) Decision

	// RecordHeader are the names of the header fields of an answer that are recorded. The default is all of them, except
	// those that are never recorded: Set-Cookie and other secrets, and what belongs to one connection or one exchange. What
	// is not recorded is sent to the first caller only.
	RecordHeader []string

	// Authorize is asked before every replay whether this caller may have this answer, for what Scope cannot know: a
	// permission that was taken away since. result must not be changed. An error is 403, or the *Problem that it is, and
	// nothing of the answer is sent.
	Authorize func(r *http.Request, result idem.Result) error

	// ReplayedHeader is the name of the header field that is "true" in a replay. The default is Idempotency-Replayed.
	ReplayedHeader string

	// Statuses are the status codes of problems. The default is those of the IETF's draft.
	Statuses Statuses

	// Render writes a problem. The default is Problem.ServeHTTP.
	Render func(w http.ResponseWriter, r *http.Request, p *Problem)

	// Logger is told the cause of every problem that is not the client's, with where it arose. What the handler answers
	// itself is not logged, unless it answers twice. A key is never shown in full. The default is slog.Default().
	Logger *slog.Logger

	// What follows is for idem.Do: see the option of the same name. Zero is its default.

	TTL time.Duration

	// Wait should be well below http.Server.WriteTimeout and the timeout of a proxy in front: a duplicate that is cut off
	// while it waits has no answer. Negative is none: a duplicate is answered at once.
	Wait time.Duration

	Retries   int // negative: none
	TxOptions pgx.TxOptions

	// Through is idemsql.Through(db) for handlers that use database/sql: idemsql.SQLTx returns the *sql.Tx of the transaction, also of a request
	// without a key. An operation is not made through it.
	Through idem.Option

	// MaxResponse limits an answer, in bytes: its body, and the header fields that are recorded, as the JSON in which they are
	// stored. It holds for every answer, also one that is not remembered. A Write that would exceed it fails with
	// idem.ErrResponseTooLarge, and whatever the handler answers then, the client gets 500 and nothing is committed. The
	// default is 1 MiB.
	MaxResponse int

	// Name and Observer are also for requests without a key. Several observers become one by idem.Observers.
	Name     string
	Observer idem.Observer

	// Sealer encrypts the recorded answers at rest. An answer that it does not open is a 500, of which the log says why.
	Sealer idem.Sealer
}
