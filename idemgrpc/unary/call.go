package unary

import (
	"cmp"
	"context"
	"errors"
	"reflect"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"google.golang.org/genproto/googleapis/rpc/code"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/idem-go/idem"
)

// Call is a call of a method that needs a key.
type Call struct {
	Method  string // the full name, such as "/shop.Orders/Create"
	Request any

	// Scope returns the scope of the key. If Scope returns an error, the call fails with the status
	// of the error, or with PERMISSION_DENIED if the error has no status.
	Scope func() (string, error)
	// Key returns the key, and whether the call has a key.
	Key func() (string, bool)
	// Handle runs the handler with a copy of the request. Do may call it more than once. If
	// Answer.Ran is true, the answer is the result of the last run. Otherwise, the results of all
	// runs are discarded.
	Handle func(ctx context.Context, request proto.Message) (reply any, err error)
	// Status returns the status of an error from Scope or Handle, and false if the error has no
	// status.
	Status func(error) (*spb.Status, bool)
}

// Answer is the answer to a call: a reply, an error, or a status.
type Answer struct {
	Reply    any
	Err      error       // the error of the handler or of Scope, unchanged
	Said     *spb.Status // the status to send; if nil, Err or Reply is sent
	Replayed bool        // the answer was recorded by an earlier call
	Ran      bool        // Reply and Err are from the last run of the handler
}

// call is a Call in progress.
type call struct {
	*Server
	Call
	method  *Method
	request proto.Message

	reply any   // the reply of the last run of the handler
	err   error // the error of the last run of the handler
	// The status that is recorded for err, if the status of err cannot be recorded unchanged.
	said *spb.Status
	lost bool // the database connection was closed when the last run ended
}

// Do executes a call, or returns the recorded answer of an earlier call with the same key.
func (s *Server) Do(ctx context.Context, of Call) Answer {
	c := &call{Server: s, Call: of, method: s.methods.Find(of.Method)}
	if c.method.absent != nil {
		return c.broken(ctx, "the method", c.method.absent)
	}
	var err error
	if c.request, err = requestOf(c.method, of.Request); err != nil {
		return c.broken(ctx, "the request", err)
	}
	scope, err := c.Scope()
	if err != nil {
		return c.refused(ctx, err)
	}
	key, hasKey := c.Key()
	switch {
	case !hasKey && s.config.Optional:
		return c.withoutKey(ctx)
	case !hasKey:
		return Answer{Said: Say(code.Code_INVALID_ARGUMENT, KeyMissing, "the call needs a key, in "+KeyMetadata)}
	}
	hash, err := s.fingerprint(c.method, c.request)
	if err != nil {
		return c.broken(ctx, "the fingerprint", err)
	}
	run := func(tx pgx.Tx) (idem.Response, error) { return c.run(ctx, tx) }
	result, err := idem.Do(ctx, s.config.Pool, scope, key, hash, run, s.config.Options...)
	switch {
	case err != nil:
		return c.failed(ctx, err)
	case !result.Replayed:
		return Answer{Reply: c.reply, Err: c.err, Said: c.said, Ran: true}
	}
	reply, said, err := replay(c.method, &result)
	if err != nil {
		return c.broken(ctx, "the record", err)
	}
	return Answer{Reply: reply, Said: said, Replayed: true}
}

// refused returns the answer for an error of Scope. If the error has no status, refused logs the
// error and does not show it to the client.
func (c *call) refused(ctx context.Context, err error) Answer {
	if _, ok := c.Status(err); ok {
		return Answer{Err: err}
	}
	c.config.Logger.WarnContext(ctx, c.config.Package+": Config.Scope has refused a call", "method", c.method.name, "error", err)
	return Answer{Said: &spb.Status{Code: int32(code.Code_PERMISSION_DENIED), Message: "the caller may not do this"}}
}

// handle runs the handler once and stores its result in c. The handler gets a copy of the request,
// so that it does not see changes that an earlier run made to the request.
func (c *call) handle(ctx context.Context, tx pgx.Tx) {
	c.said = nil
	c.reply, c.err = c.Handle(context.WithValue(ctx, txKey{}, tx), proto.Clone(c.request))
	c.lost = tx.Conn().IsClosed()
}

// run runs the handler. It returns the reply, or the final status as an error of idem.Reject, in
// the form that idem.Do records. For an error that is not a final status, run returns a *failure.
// For a reply or status that cannot be encoded, it returns an *unrecordable.
func (c *call) run(ctx context.Context, tx pgx.Tx) (idem.Response, error) {
	c.handle(ctx, tx)
	if c.err == nil {
		response, err := recordReply(c.method, c.reply)
		if err != nil {
			return response, &unrecordable{err}
		}
		return response, nil
	}
	said, ok := c.Status(c.err)
	if !ok || !isFinal(said) {
		return idem.Response{}, &failure{c.err}
	}
	if c.said = readable(said); c.said == said {
		c.said = nil
	}
	response, err := recordStatus(cmp.Or(c.said, said))
	if err != nil {
		return response, &unrecordable{err}
	}
	return idem.Response{}, idem.Reject(response)
}

// withoutKey runs the handler in a transaction and records nothing. It runs the handler again after
// a serialization failure or a deadlock. If the acknowledgement of the COMMIT is lost, the answer
// is UNKNOWN.
func (c *call) withoutKey(ctx context.Context) Answer {
	for retries := idem.DefaultRetries; ; retries-- {
		sent, err := c.once(ctx)
		if err == nil {
			return Answer{Reply: c.reply, Ran: true}
		}
		if sent && inDoubt(err) {
			c.config.Logger.ErrorContext(ctx, c.config.Package+": it is not known whether a call without a key was executed", "method", c.method.name, "error", err)
			return Answer{Said: Say(code.Code_UNKNOWN, OutcomeUnknown, "it is not known whether the call was executed, and it has no key to ask by")}
		}
		refused, ok := errors.AsType[*pgconn.PgError](err)
		if !ok || refused.Code != "40001" && refused.Code != "40P01" || retries == 0 {
			return c.failed(ctx, err)
		}
	}
}

// once runs the handler in one transaction. The result sent is true if COMMIT may have reached the
// database.
//
// once does not use pgx.BeginFunc, because its error does not show whether COMMIT was sent. After a
// lost connection, pgx.BeginFunc returns the error of a ROLLBACK on the closed connection.
func (c *call) once(ctx context.Context) (sent bool, err error) {
	tx, err := c.config.Pool.Begin(ctx)
	if err != nil {
		return false, err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	c.handle(ctx, tx)
	if c.err != nil {
		return false, &failure{c.err}
	}
	sent = ctx.Err() == nil && !c.lost
	return sent, tx.Commit(ctx)
}

// inDoubt reports whether a transaction may be committed although its COMMIT returned err. The
// transaction is certainly not committed if the database answered with an ERROR or a rollback.
// After a lost connection, the transaction may be committed, whatever error pgx returns.
func inDoubt(err error) bool {
	refused, ok := errors.AsType[*pgconn.PgError](err)
	return !(ok && refused.SeverityUnlocalized == "ERROR") && !errors.Is(err, pgx.ErrTxCommitRollback) && !errors.Is(err, pgx.ErrTxClosed)
}

// failed returns the answer for an error after which nothing is recorded.
//
// An error of the handler goes to the client unchanged, with one exception: for a retryable error
// of the database without a status, the client gets UNAVAILABLE. For an error outside of the
// handler, the function answer chooses the status. Errors that do not go to the client unchanged
// are logged, unless the client has caused them.
func (c *call) failed(ctx context.Context, err error) Answer {
	if u, ok := errors.AsType[*unrecordable](err); ok {
		return c.broken(ctx, "the reply", u.error)
	}
	if f, ok := errors.AsType[*failure](err); ok && !errors.Is(err, idem.ErrOutcomeUnknown) {
		if _, isStatus := c.Status(f.error); isStatus || ctx.Err() != nil || !c.isOfTheDatabase(f.error) || !idem.Retryable(f.error) {
			return Answer{Err: f.error, Ran: true}
		}
	}
	said, isOurs := answer(ctx, err)
	if isOurs {
		c.config.Logger.ErrorContext(ctx, c.config.Package+": a call could not be executed", "method", c.method.name, "error", err)
	}
	return Answer{Said: said}
}

// isOfTheDatabase reports whether err comes from Postgres. The error of a lost connection could
// come from any server that the handler uses. It counts as an error of the database only if the
// connection of the transaction is closed.
func (c *call) isOfTheDatabase(err error) bool {
	_, answered := errors.AsType[*pgconn.PgError](err)
	_, refused := errors.AsType[*pgconn.ConnectError](err)
	return answered || refused || c.lost
}

// broken logs err and returns the answer INTERNAL. The client does not see err.
func (c *call) broken(ctx context.Context, what string, err error) Answer {
	c.config.Logger.ErrorContext(ctx, c.config.Package+": a call could not be executed: "+what, "method", c.method.name, "error", err)
	return Answer{Said: Say(code.Code_INTERNAL, Broken, "the call could not be executed")}
}

// failure wraps an error of the handler, so that failed can distinguish the error from errors of
// idem.Do.
//
// idem.Do can see the wrapped error with errors.Is and errors.As, and runs the handler again after
// a serialization failure. Only an error of idem.Reject is hidden from idem.Do, by the method As.
// The handler cannot use idem.Reject, because the status of its error decides what is recorded.
type failure struct{ error }

func (f *failure) Is(target error) bool { return errors.Is(f.error, target) }

func (f *failure) As(target any) bool {
	return reflect.TypeOf(target) != rejection && errors.As(f.error, target)
}

// rejection is the type of the target that idem.Do passes to errors.As to find an error of
// idem.Reject.
var rejection = reflect.PointerTo(reflect.TypeOf(idem.Reject(idem.Response{})))

// unrecordable wraps the reason why the result of the handler cannot be recorded.
type unrecordable struct{ error }
