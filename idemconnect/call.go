package idemconnect

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"reflect"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/protobuf/proto"

	"github.com/idem-go/idem/idemgrpc/unary"
)

// interceptor is the interceptor of a server.
type interceptor struct {
	config Config
	server *unary.Server
}

// WrapUnary returns a function that executes calls with a key. Outgoing calls of a client pass
// through. Calls of methods that Config.Methods excludes pass through, too.
func (i *interceptor) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		procedure := req.Spec().Procedure
		if req.Spec().IsClient || !i.config.Methods(procedure) {
			return next(ctx, req)
		}
		var last connect.AnyResponse // the response of the last run, with its headers
		before := snapshotOf(ctx)
		sent := req.Header().Clone() // a copy: a run of the handler may change the header
		answer := i.server.Do(ctx, unary.Call{
			Method: procedure, Request: req.Any(), Status: statusOf,
			Scope: func() (string, error) { return i.config.Scope(ctx, req) },
			Key:   func() (string, bool) { return i.config.Key(ctx, req) },
			Handle: func(ctx context.Context, request proto.Message) (any, error) {
				before.restore()
				restore(req.Header(), sent)
				with, err := requestWith(req, request)
				if err != nil {
					return nil, err
				}
				if last, err = next(ctx, with); err != nil {
					return nil, err
				}
				return last.Any(), nil
			},
		})
		if !answer.Ran {
			before.restore()
		}
		switch {
		case answer.Said != nil:
			return nil, errorOf(answer)
		case answer.Err != nil:
			return nil, answer.Err
		case answer.Replayed:
			return replayed(answer.Reply), nil
		}
		return last, nil
	}
}

// WrapStreamingClient returns its argument, so that outgoing streams of a client pass through.
func (i *interceptor) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler refuses streams with CodeUnimplemented. The replies of a stream cannot be
// recorded, so a retry would repeat its effects. Streams of methods that Config.Methods excludes
// pass through. With Config.Optional, streams without a key pass through too.
func (i *interceptor) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		procedure := conn.Spec().Procedure
		_, hasKey := keyIn(conn.RequestHeader())
		if !i.config.Methods(procedure) || i.config.Optional && !hasKey {
			return next(ctx, conn)
		}
		return errorOf(unary.Answer{Said: unary.Say(code.Code_UNIMPLEMENTED, Streaming,
			procedure+" is a stream, whose replies cannot be recorded: Config.Methods of idemconnect lets it pass without a key")})
	}
}

// requestWith returns a copy of the request req that contains the given message.
//
// The handler expects a *connect.Request[T] for the type T of its message, and T is only known at
// run time. So requestWith copies the request by reflection and replaces the field Msg of the copy.
// It fails if req is not a *connect.Request[T] for the type of the message.
func requestWith(req connect.AnyRequest, message proto.Message) (connect.AnyRequest, error) {
	from := reflect.ValueOf(req)
	if from.Kind() == reflect.Pointer && from.Elem().Kind() == reflect.Struct {
		to := reflect.New(from.Type().Elem())
		to.Elem().Set(from.Elem())
		if field := to.Elem().FieldByName("Msg"); field.IsValid() && field.Type() == reflect.TypeOf(message) {
			field.Set(reflect.ValueOf(message))
			if with, ok := to.Interface().(connect.AnyRequest); ok {
				return with, nil
			}
		}
	}
	return nil, fmt.Errorf("the request is %T, and none of connect with a %T", req, message)
}

// reply is a response whose message type is only known at run time.
type reply struct {
	connect.AnyResponse
	message any
}

// Any returns the message.
func (r *reply) Any() any { return r.message }

// replayed returns a response with a recorded message and the header ReplayedHeader.
func replayed(message any) connect.AnyResponse {
	r := &reply{AnyResponse: connect.NewResponse(&struct{}{}), message: message}
	r.Header().Set(ReplayedHeader, "true")
	return r
}

// snapshot contains the response header and trailer from before the call. Outer interceptors may
// have set them through the context. The interceptor uses the snapshot to discard what a run of the
// handler has added, if the handler runs again or the answer is not the result of the last run.
type snapshot struct {
	info            connect.CallInfo
	header, trailer http.Header
}

// snapshotOf takes a snapshot of the response header and trailer of ctx. It returns nil if ctx is
// not the context of a handler.
func snapshotOf(ctx context.Context) *snapshot {
	info, ok := connect.CallInfoForHandlerContext(ctx)
	if !ok {
		return nil
	}
	return &snapshot{info: info, header: info.ResponseHeader().Clone(), trailer: info.ResponseTrailer().Clone()}
}

// restore resets the response header and trailer to the snapshot. This discards what a run of the
// handler has added.
func (s *snapshot) restore() {
	if s == nil {
		return
	}
	restore(s.info.ResponseHeader(), s.header)
	restore(s.info.ResponseTrailer(), s.trailer)
}

// restore replaces the contents of the first header by a copy of the second header.
func restore(header, was http.Header) {
	clear(header)
	maps.Copy(header, was.Clone())
}
