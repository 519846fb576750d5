package idemgrpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/grpc"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemgrpc/unary"
)

// Config configures an Interceptor. Only Scope is required.
type Config struct {
	// Scope returns the scope of a call, made from the caller and the method, for example
	// idem.Scope(tenant, info.FullMethod). A caller that sends the same scope, key and request gets
	// the recorded reply, so identify the caller by verified credentials. Use the principal and not
	// the credential itself: a retry after a rotation must have the same scope. If Scope returns an
	// error, the call fails with the status of the error, or with PERMISSION_DENIED if the error
	// has no status.
	Scope func(ctx context.Context, info *grpc.UnaryServerInfo, req any) (string, error)

	// Key returns the key of a call, and whether the call has a key. By default, the key is in the
	// metadata with the name KeyMetadata. For AIP-155, return the field request_id of the request,
	// and list that field in Without.
	Key func(ctx context.Context, req any) (string, bool)

	// Optional lets a call without a key through. By default such a call is refused.
	//
	// The handler of a call without a key also runs in a transaction, which is committed if the
	// status is OK. The reply is not recorded, and Options do not apply. If the acknowledgement of
	// the COMMIT is lost, no record shows whether the call was executed, and the client gets
	// UNKNOWN.
	Optional bool

	// Methods reports whether a method, such as "/shop.Orders/Create", needs a key. Calls of other
	// methods pass through unchanged. The default excludes methods whose idempotency_level is
	// NO_SIDE_EFFECTS, and gRPC's own services: health, reflection, channelz.
	Methods func(fullMethod string) bool

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

// Interceptor makes the calls of a server safe to retry. It is safe for concurrent use.
type Interceptor struct {
	config Config
	server *unary.Server
}

// New returns an Interceptor. It fails if pool is nil or if the configuration is invalid.
func New(pool *pgxpool.Pool, config Config) (*Interceptor, error) {
	server, err := unary.NewServer(unary.Config{
		Pool: pool, Optional: config.Optional, Without: config.Without, Options: config.Options, Logger: config.Logger, Package: "idemgrpc",
	})
	if err != nil {
		return nil, fmt.Errorf("idemgrpc: %w", err)
	}
	if config.Scope == nil {
		return nil, errors.New("idemgrpc: Config.Scope is required: it says whose keys these are")
	}
	if config.Key == nil {
		config.Key = keyOf
	}
	if config.Methods == nil {
		config.Methods = new(unary.Methods).MayHaveEffect
	}
	return &Interceptor{config: config, server: server}, nil
}
