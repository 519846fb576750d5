package idemconnect

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/textproto"

	"connectrpc.com/connect"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemgrpc/unary"
)

// Config configures the interceptor of a server. Only Scope is required.
type Config struct {
	// Scope returns the scope of a call, made from the caller and the method, for example
	// idem.Scope(tenant, req.Spec().Procedure). A caller that sends the same scope, key and request
	// gets the recorded reply, so identify the caller by verified credentials. Use the principal
	// and not the credential itself: a retry after a rotation must have the same scope. If Scope
	// returns a *connect.Error, the call fails with this error. If Scope returns any other error,
	// the call fails with CodePermissionDenied.
	Scope func(ctx context.Context, req connect.AnyRequest) (string, error)

	// Key returns the key of a call, and whether the call has a key. By default, the key is in the
	// header KeyHeader. For AIP-155, return the field request_id of the request, and list that
	// field in Without.
	Key func(ctx context.Context, req connect.AnyRequest) (string, bool)

	// Optional lets a call without a key through. By default such a call is refused.
	//
	// The handler of a call without a key also runs in a transaction, which is committed if the
	// handler returns no error. The reply is not recorded, and Options do not apply. If the
	// acknowledgement of the COMMIT is lost, no record shows whether the call was executed, and the
	// client gets CodeUnknown.
	Optional bool

	// Methods reports whether a method, such as "/shop.Orders/Create", needs a key. Calls of other
	// methods pass through unchanged. The default excludes methods whose idempotency_level is
	// NO_SIDE_EFFECTS, and gRPC's own services: health, reflection, channelz.
	Methods func(procedure string) bool

	// Without lists fields of requests that differ in every attempt, such as "client.sent_at". When
	// a key is sent again, these fields may differ from the first request. A field is given as its
	// path of names in the .proto file. The list applies to all methods. A path that does not exist
	// in a request is ignored.
	Without []string

	// Options are passed to idem.Do.
	Options []idem.Option

	// Logger logs why the interceptor answered instead of the handler, unless the client made a
	// mistake. Keys are abridged in the log. The default is slog.Default().
	Logger *slog.Logger
}

// Names of headers. They are the same in all protocols: Connect, gRPC and gRPC-Web.
const (
	KeyHeader      = "Idempotency-Key"      // the key of a call
	ReplayedHeader = "Idempotency-Replayed" // "true" in an answer that an earlier call recorded
)

// New returns the interceptor of a server, for connect.WithInterceptors. Install it after
// interceptors that authenticate the caller. Outgoing calls of a client pass through it. New fails
// if pool is nil or if the configuration is invalid.
func New(pool *pgxpool.Pool, config Config) (connect.Interceptor, error) {
	server, err := unary.NewServer(unary.Config{
		Pool: pool, Optional: config.Optional, Without: config.Without, Options: config.Options, Logger: config.Logger, Package: "idemconnect",
	})
	if err != nil {
		return nil, fmt.Errorf("idemconnect: %w", err)
	}
	if config.Scope == nil {
		return nil, errors.New("idemconnect: Config.Scope is required: it says whose keys these are")
	}
	if config.Key == nil {
		config.Key = func(_ context.Context, req connect.AnyRequest) (string, bool) { return keyIn(req.Header()) }
	}
	if config.Methods == nil {
		config.Methods = new(unary.Methods).MayHaveEffect
	}
	return &interceptor{config: config, server: server}, nil
}

// keyIn returns the key in the header of a call. If the header has several keys, keyIn returns "",
// which is not a valid key.
func keyIn(header map[string][]string) (string, bool) {
	keys := textproto.MIMEHeader(header).Values(KeyHeader)
	switch len(keys) {
	case 0:
		return "", false
	case 1:
		return keys[0], true
	}
	return "", true
}
