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

// Call is one call of a method that needs a key.
type Call struct {
	Method  string // its full name: "/shop.Orders/Create"
	Request any

	// Scope says whose key it is. An error is PERMISSION_DENIED, or the status that it is.
	Scope func() (string, error)
	// Key returns the key, and whether there is one.
	Key func() (string, bool)
	// Handle runs the handler, with a request of its own. It may be called more than once: only the last run counts, and only if Answer.Ran.
	Handle func(ctx context.Context, request proto.Message) (reply any, err error)
	// Status returns the status that an error of Scope or Handle is.
	Status func(error) (*spb.Status, bool)
}

// Answer is what a call is answered with: a reply, an error, or a status.
type Answer struct {
	Reply    any
	Err      error       // of the handler or of Scope, as it is
	Said     *spb.Status // what is recorded where that is not Err, or what the server says itself
	Replayed bool        // it was recorded by an earlier call
	Ran      bool        // Reply and Err are those of the last run of the handler
}

// call is a Call under way.
type call struct {
	*Server
	Call
	method  *Method
	request proto.Message

	reply any         // of the last run
	err   error       // and its error
	said  *spb.Status // and what is recorded in the place of a status that cannot be recorded as it is
	lost  bool        // and whether its connection to the database was closed behind it
}

// Do executes a call, or answers it with what was recorded.
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

// refused is the answer to a caller whom Scope has refused.
func (c *call) refused(ctx context.Context, err error) Answer {
	if _, ok := c.Status(err); ok {
		return Answer{Err: err}
	}
	c.config.Logger.WarnContext(ctx, c.config.Package+": Config.Scope has refused a call", "method", c.method.name, "error", err)
	return Answer{Said: &spb.Status{Code: int32(code.Code_PERMISSION_DENIED), Message: "the caller may not do this"}}
}

// handle is one run of the handler, with a request of its own.
func (c *call) handle(ctx context.Context, tx pgx.Tx) {
	c.said = nil
	c.reply, c.err = c.Handle(context.WithValue(ctx, txKey{}, tx), proto.Clone(c.request))
	c.lost = tx.Conn().IsClosed()
}

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

// withoutKey runs the handler in a transaction that records nothing, again after a serialization failure or a deadlock.
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

// once runs the handler in a transaction, and reports whether its COMMIT may have reached the server. pgx.BeginFunc would return the error of a
// ROLLBACK on the closed connection, which tells nothing of that.
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

// inDoubt reports whether a transaction may have been committed although its COMMIT returned an error. A lost connection is one, whatever pgx says
// of it: what it says may be of the connection being closed alone.
func inDoubt(err error) bool {
	refused, ok := errors.AsType[*pgconn.PgError](err)
	return !(ok && refused.SeverityUnlocalized == "ERROR") && !errors.Is(err, pgx.ErrTxCommitRollback) && !errors.Is(err, pgx.ErrTxClosed)
}

// failed returns what the client is told of an error behind which nothing is recorded.
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

// isOfTheDatabase reports whether the error of a handler is one of Postgres. A lost connection looks the same whatever was at its other end: only if
// that of the transaction is closed it was the database.
func (c *call) isOfTheDatabase(err error) bool {
	_, answered := errors.AsType[*pgconn.PgError](err)
	_, refused := errors.AsType[*pgconn.ConnectError](err)
	return answered || refused || c.lost
}

func (c *call) broken(ctx context.Context, what string, err error) Answer {
	c.config.Logger.ErrorContext(ctx, c.config.Package+": a call could not be executed: "+what, "method", c.method.name, "error", err)
	return Answer{Said: Say(code.Code_INTERNAL, Broken, "the call could not be executed")}
}

// failure is an error of the handler, which is told from those of idem.Do by its type. idem.Do sees what it wraps, and runs the handler again after
// a serialization failure, but no rejection: a handler answers by a status.
type failure struct{ error }

func (f *failure) Is(target error) bool { return errors.Is(f.error, target) }

func (f *failure) As(target any) bool {
	return reflect.TypeOf(target) != rejection && errors.As(f.error, target)
}

// rejection is the type that errors.As looks for when it looks for a rejection.
var rejection = reflect.PointerTo(reflect.TypeOf(idem.Reject(idem.Response{})))

// unrecordable says that what the handler has returned cannot be recorded.
type unrecordable struct{ error }
