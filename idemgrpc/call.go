package idemgrpc

import (
	"context"
	"errors"
	"reflect"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/idem-go/idem"
)

// Unary returns the interceptor of unary calls. Put it behind those that authenticate the caller, and behind one that recovers from panics.
func (i *Interceptor) Unary() grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		if !i.config.Methods(info.FullMethod) {
			return handler(ctx, req)
		}
		c := &call{Interceptor: i, ctx: ctx, info: info, handler: handler, method: i.methods.find(info.FullMethod)}
		reply, err := c.answer(req)
		c.last.release()
		return reply, err
	}
}

// call is one call of a method that needs a key.
type call struct {
	*Interceptor
	ctx     context.Context
	info    *grpc.UnaryServerInfo
	handler grpc.UnaryHandler
	method  *method
	request proto.Message

	reply any   // of the last run
	err   error // and its error
	last  *held // and its metadata
	lost  bool  // and whether its connection to the database was closed behind it
}

func (c *call) answer(req any) (any, error) {
	if c.method.absent != nil {
		return nil, c.broken("the method", c.method.absent)
	}
	var err error
	if c.request, err = message("request", c.method, req); err != nil {
		return nil, c.broken("the request", err)
	}
	scope, err := c.config.Scope(c.ctx, c.info, req)
	if err != nil {
		if _, ok := status.FromError(err); ok {
			return nil, err
		}
		c.config.Logger.WarnContext(c.ctx, "idemgrpc: Config.Scope has refused a call", "method", c.method.name, "error", err)
		return nil, status.Error(codes.PermissionDenied, "the caller may not do this")
	}
	key, hasKey := c.config.Key(c.ctx, req)
	switch {
	case !hasKey && c.config.Optional:
		return c.withoutKey()
	case !hasKey:
		return nil, say(codes.InvalidArgument, KeyMissing, "the call needs a key, in the metadata "+KeyMetadata)
	}
	hash, err := c.fingerprint(c.method, c.request)
	if err != nil {
		return nil, c.broken("the fingerprint", err)
	}
	result, err := idem.Do(c.ctx, c.pool, scope, key, hash, c.run, c.config.Options...)
	switch {
	case err != nil:
		return nil, c.failed(err)
	case !result.Replayed:
		return c.reply, c.err
	}
	return c.replayed(&result)
}

// replayed answers with what was recorded.
func (c *call) replayed(result *idem.Result) (any, error) {
	reply, said, err := replay(c.method, result)
	if err != nil {
		return nil, c.broken("the record", err)
	}
	c.last = nil
	_ = grpc.SetHeader(c.ctx, metadata.Pairs(ReplayedMetadata, "true")) // it fails outside of a server alone
	return reply, said.Err()
}

// run is one run of the handler, with a request of its own.
func (c *call) run(tx pgx.Tx) (idem.Response, error) {
	ctx := context.WithValue(c.ctx, txKey{}, tx)
	ctx, c.last = hold(ctx)
	c.reply, c.err = c.handler(ctx, proto.Clone(c.request))
	c.lost = tx.Conn().IsClosed()
	if c.err == nil {
		response, err := recordReply(c.method, c.reply)
		if err != nil {
			return response, &unrecordable{err}
		}
		return response, nil
	}
	said, ok := status.FromError(c.err)
	if !ok || !isFinal(said.Code()) {
		return idem.Response{}, &failure{c.err}
	}
	response, err := recordStatus(said)
	if err != nil {
		return response, &unrecordable{err}
	}
	return idem.Response{}, idem.Reject(response)
}

// withoutKey runs the handler in a transaction that records nothing, again after a serialization failure or a deadlock.
func (c *call) withoutKey() (any, error) {
	const most = 4 // as often as idem.Do by default
	for tried := 1; ; tried++ {
		sent, err := c.once()
		if err == nil {
			return c.reply, nil
		}
		if sent && inDoubt(err) {
			c.last = nil
			c.config.Logger.ErrorContext(c.ctx, "idemgrpc: it is not known whether a call without a key was executed", "method", c.method.name, "error", err)
			return nil, say(codes.Unknown, OutcomeUnknown, "it is not known whether the call was executed, and it has no key to ask by")
		}
		refused, ok := errors.AsType[*pgconn.PgError](err)
		if !ok || refused.Code != "40001" && refused.Code != "40P01" || tried == most {
			return nil, c.failed(err)
		}
	}
}

// once runs the handler in a transaction, and reports whether its COMMIT may have reached the server. pgx.BeginFunc would return the error of a
// ROLLBACK on the closed connection, which tells nothing of that.
func (c *call) once() (sent bool, err error) {
	tx, err := c.pool.Begin(c.ctx)
	if err != nil {
		return false, err
	}
	defer func() { _ = tx.Rollback(c.ctx) }()
	ctx := context.WithValue(c.ctx, txKey{}, tx)
	ctx, c.last = hold(ctx)
	c.reply, c.err = c.handler(ctx, proto.Clone(c.request))
	c.lost = tx.Conn().IsClosed()
	if c.err != nil {
		return false, &failure{c.err}
	}
	sent = c.ctx.Err() == nil && !c.lost
	return sent, tx.Commit(c.ctx)
}

// inDoubt reports whether a transaction may have been committed although its COMMIT returned an error. A lost connection is one, whatever pgx says
// of it: what it says may be of the connection being closed alone.
func inDoubt(err error) bool {
	refused, ok := errors.AsType[*pgconn.PgError](err)
	return !(ok && refused.SeverityUnlocalized == "ERROR") && !errors.Is(err, pgx.ErrTxCommitRollback) && !errors.Is(err, pgx.ErrTxClosed)
}

// failed returns what the client is told of an error behind which nothing is recorded.
func (c *call) failed(err error) error {
	if u, ok := errors.AsType[*unrecordable](err); ok {
		return c.broken("the reply", u.error)
	}
	if f, ok := errors.AsType[*failure](err); ok && !errors.Is(err, idem.ErrOutcomeUnknown) {
		if _, isStatus := status.FromError(f.error); isStatus || c.ctx.Err() != nil || !c.isOfTheDatabase(f.error) || !idem.Retryable(f.error) {
			return f.error
		}
	}
	c.last = nil
	said, isOurs := answer(c.ctx, err)
	if isOurs {
		c.config.Logger.ErrorContext(c.ctx, "idemgrpc: a call could not be executed", "method", c.method.name, "error", err)
	}
	return said
}

// isOfTheDatabase reports whether the error of a handler is one of Postgres. A lost connection looks the same whatever was at its other end: only if
// that of the transaction is closed it was the database.
func (c *call) isOfTheDatabase(err error) bool {
	_, answered := errors.AsType[*pgconn.PgError](err)
	_, refused := errors.AsType[*pgconn.ConnectError](err)
	return answered || refused || c.lost
}

func (c *call) broken(what string, err error) error {
	c.last = nil
	c.config.Logger.ErrorContext(c.ctx, "idemgrpc: a call could not be executed: "+what, "method", c.method.name, "error", err)
	return say(codes.Internal, Broken, "the call could not be executed")
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
