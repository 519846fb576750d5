package idemmcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/idem-go/idem"
)

// KeyHeader is the HTTP header that carries the key. A key in _meta takes precedence.
const KeyHeader = "Idempotency-Key"

// Names of the members of _meta that this package uses.
const (
	KeyMeta      = "idempotency-key"      // in a call: the key of the call
	ReplayedMeta = "idempotency-replayed" // in a result: true if an earlier call recorded the result
)

type txKey struct{}

// Tx returns the transaction of the call that ctx belongs to. The rules of [idem.Do] apply: the
// handler must not commit the transaction, roll it back, or use it after returning.
// [idem.ExecutionID] accepts the transaction.
//
// Tx panics unless ctx is the context of a handler that [Server.Middleware] runs, for a tool in
// Config.Tools.
func Tx(ctx context.Context) pgx.Tx {
	tx, ok := ctx.Value(txKey{}).(pgx.Tx)
	if !ok {
		panic("idemmcp: Tx: this context is not that of a handler under Server.Middleware; is the tool one of Config.Tools?")
	}
	return tx
}

// Middleware makes the calls of the tools in Config.Tools idempotent. It must run after the
// middleware that authenticates the caller. Otherwise a caller without credentials could get
// recorded results. Pass both to AddReceivingMiddleware in one call, the authentication first:
//
//	server.AddReceivingMiddleware(authenticate, keyed.Middleware)
//
// If idem.Do runs the handler again, it also runs the middleware between this one and the handler
// again.
func (s *Server) Middleware(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		switch req := req.(type) {
		case *mcp.CallToolRequest:
			if source, ok := s.config.Tools[req.Params.Name]; ok {
				return s.call(ctx, method, req, source, next)
			}
		case *mcp.ListToolsRequest:
			result, err := next(ctx, method, req)
			if list, ok := result.(*mcp.ListToolsResult); ok && err == nil {
				return s.annotated(list), nil
			}
			return result, err
		}
		return next(ctx, method, req)
	}
}

// annotated returns a copy of list with idempotentHint set on the tools whose key is an argument.
func (s *Server) annotated(list *mcp.ListToolsResult) *mcp.ListToolsResult {
	annotated := *list
	annotated.Tools = slices.Clone(list.Tools)
	for i, tool := range list.Tools {
		if s.config.Tools[tool.Name].kind != fromArgument {
			continue
		}
		copied, hints := *tool, mcp.ToolAnnotations{}
		if tool.Annotations != nil {
			hints = *tool.Annotations
		}
		hints.IdempotentHint = true
		copied.Annotations = &hints
		annotated.Tools[i] = &copied
	}
	return &annotated
}

// call executes a call, or returns the recorded result of an earlier call with the same key.
func (s *Server) call(ctx context.Context, method string, req *mcp.CallToolRequest, source Source, next mcp.MethodHandler) (mcp.Result, error) {
	scope, err := s.config.Scope(ctx, req)
	if err != nil {
		return nil, err
	}
	arguments := req.Params.Arguments
	if len(bytes.TrimSpace(arguments)) == 0 {
		arguments = []byte("{}")
	}
	hash, err := idem.HashJSON(arguments)
	if err != nil {
		return nil, refuse(ArgumentsInvalid, "the arguments are not a JSON document that has one meaning: "+err.Error(), false, 0)
	}
	// The hash includes the name of the tool, so that two tools with the same scope, key and
	// arguments do not share a result.
	hash = idem.HashBytes([]byte(req.Params.Name), hash[:])
	options := s.config.Options
	key, ok := keyOf(req, arguments, source)
	switch {
	case !ok:
		return nil, refuse(KeyInvalid, "the key must be one string of 1 to 255 bytes", false, 0)
	case key == "" && source.kind == fromArguments:
		key, options = "arguments:"+hash.String(), append(slices.Clone(options), idem.WithTTL(source.within))
	case key == "" && source.kind == fromArgument:
		return nil, refuse(KeyMissing, "the call needs a key, in the argument "+strings.Join(source.argument, "."), false, 0)
	case key == "":
		return nil, refuse(KeyMissing, "the call needs a key, in _meta under "+KeyMeta+" or in the header "+KeyHeader, false, 0)
	}
	e := execution{server: s, method: method, req: req, next: next}
	result, err := idem.Do(ctx, s.pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) { return e.run(ctx, tx) }, options...)
	switch {
	case err != nil:
		return e.failed(ctx, err)
	case !result.Replayed:
		return e.result, nil
	}
	replayed, err := decode(result.Body)
	if err != nil {
		return nil, s.broken(ctx, req, fmt.Errorf("the recorded result cannot be read: %w", err))
	}
	return replayed, nil
}

// keyOf returns the key of a call, or "" if the call has none. It reports false if the key is empty
// or not a string, or if the request has the header KeyHeader several times.
func keyOf(req *mcp.CallToolRequest, arguments []byte, source Source) (string, bool) {
	if sent, ok := req.Params.Meta[KeyMeta]; ok {
		key, ok := sent.(string)
		return key, ok && key != ""
	}
	if req.Extra != nil && len(req.Extra.Header.Values(KeyHeader)) > 0 {
		key := req.Extra.Header.Get(KeyHeader)
		return key, key != "" && len(req.Extra.Header.Values(KeyHeader)) == 1
	}
	if source.kind != fromArgument {
		return "", true
	}
	value := json.RawMessage(arguments)
	for _, name := range source.argument {
		var members map[string]json.RawMessage
		if json.Unmarshal(value, &members) != nil || members[name] == nil {
			return "", true
		}
		value = members[name]
	}
	var key string
	err := json.Unmarshal(value, &key)
	return key, err == nil && key != ""
}

// execution is a call of a tool during idem.Do, which runs the handler one or more times.
type execution struct {
	server *Server
	method string
	req    *mcp.CallToolRequest
	next   mcp.MethodHandler

	result *mcp.CallToolResult // result of the last run
	lost   bool                // the connection of the transaction was closed when the last run ended
}

// run runs the handler once, with a copy of the request. It returns the result of the handler as
// the Response that idem.Do records.
func (e *execution) run(ctx context.Context, tx pgx.Tx) (idem.Response, error) {
	req, params := *e.req, *e.req.Params
	params.Meta, params.Arguments = maps.Clone(params.Meta), bytes.Clone(params.Arguments)
	req.Params = &params
	result, err := e.next(context.WithValue(ctx, txKey{}, tx), e.method, &req)
	e.lost = tx.Conn().IsClosed()
	if err != nil {
		return idem.Response{}, &failure{err}
	}
	called, ok := result.(*mcp.CallToolResult)
	if !ok || called == nil {
		return idem.Response{}, &failure{fmt.Errorf("the handler returned %T and no result of a tool", result)}
	}
	e.result = called
	recorded := called.IsError && e.server.config.RecordError != nil && e.server.config.RecordError(called)
	if called.NeedsInput() || called.IsError && !recorded {
		return idem.Response{}, &unrecorded{called.GetError()}
	}
	body, err := json.Marshal(called)
	if err != nil {
		return idem.Response{}, fmt.Errorf("the result cannot be recorded: %w", err)
	}
	if called.IsError {
		return idem.Response{}, idem.Reject(idem.Response{Status: http.StatusUnprocessableEntity, Body: body})
	}
	return idem.Response{Status: http.StatusOK, Body: body}, nil
}

// failed returns the answer to the client after an error of idem.Do: the result of the handler, the
// error of the handler, or a refusal.
func (e *execution) failed(ctx context.Context, err error) (mcp.Result, error) {
	inDoubt := errors.Is(err, idem.ErrOutcomeUnknown)
	if !inDoubt && (ctx.Err() != nil || !e.isOfTheDatabase(err) || !idem.Retryable(err)) {
		if _, ok := errors.AsType[*unrecorded](err); ok {
			return e.result, nil
		}
		if f, ok := errors.AsType[*failure](err); ok {
			return nil, f.error
		}
	}
	if refused, isOurs := refusalFor(err); refused != nil {
		if isOurs {
			e.server.config.Logger.ErrorContext(ctx, "idemmcp: a call could not be executed", "tool", e.req.Params.Name, "error", err)
		}
		return nil, refused
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return nil, e.server.broken(ctx, e.req, err)
}

// isOfTheDatabase reports whether err comes from Postgres. An I/O error counts only if the
// connection of the transaction is closed. Otherwise the error may come from a call of the handler
// to another system.
func (e *execution) isOfTheDatabase(err error) bool {
	_, answered := errors.AsType[*pgconn.PgError](err)
	_, refused := errors.AsType[*pgconn.ConnectError](err)
	return answered || refused || e.lost
}

// broken logs err and returns a refusal with the reason Broken, without the text of err. The call
// may have been executed: its recorded result may be unreadable, or the handler may have committed
// the transaction itself.
func (s *Server) broken(ctx context.Context, req *mcp.CallToolRequest, err error) error {
	s.config.Logger.ErrorContext(ctx, "idemmcp: a call could not be executed", "tool", req.Params.Name, "error", err)
	return refuse(Broken, "the server failed, and may have executed the call", false, 0)
}

// decode decodes a recorded result and marks it as a replay. It keeps the structured content as raw
// JSON, because a float64 would round large numbers.
func decode(body []byte) (*mcp.CallToolResult, error) {
	var result mcp.CallToolResult
	var raw struct {
		StructuredContent json.RawMessage `json:"structuredContent"`
	}
	if err := errors.Join(json.Unmarshal(body, &result), json.Unmarshal(body, &raw)); err != nil {
		return nil, err
	}
	if len(raw.StructuredContent) > 0 {
		result.StructuredContent = raw.StructuredContent
	}
	if result.Meta == nil {
		result.Meta = mcp.Meta{}
	}
	result.Meta[ReplayedMeta] = true
	return &result, nil
}

// failure wraps a protocol error of the handler, to distinguish it from errors of idem.Do. If the
// handler returned an error of idem.Reject, failure hides it from Do, which would record a
// response. Only Config.RecordError decides what is recorded.
type failure struct{ error }

func (f *failure) Is(target error) bool { return errors.Is(f.error, target) }
func (f *failure) As(target any) bool {
	return reflect.TypeOf(target) != rejection && errors.As(f.error, target)
}

// unrecorded is the error that makes idem.Do roll back when a result must not be recorded. It wraps
// the error in the result, so that Do recognizes a serialization failure and runs the handler
// again.
type unrecorded struct{ cause error }

func (u *unrecorded) Error() string { return fmt.Sprintf("the tool failed: %v", u.cause) }

func (u *unrecorded) Is(target error) bool { return errors.Is(u.cause, target) }

func (u *unrecorded) As(target any) bool {
	return u.cause != nil && reflect.TypeOf(target) != rejection && errors.As(u.cause, target)
}

// rejection is the type of the pointer that idem.Do passes to errors.As to find an error of
// idem.Reject. The As methods above refuse this type, so that Do records no rejection.
var rejection = reflect.PointerTo(reflect.TypeOf(idem.Reject(idem.Response{})))
