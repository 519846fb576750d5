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

// Config says how an Interceptor behaves. Only Scope has to be set.
type Config struct {
	// Scope says who is calling and which operation: idem.Scope(tenant, info.FullMethod), say. Take who from what the call proves, such
	// as its credential, and as the principal, not the credential itself: after a rotation, a retry is still a retry. A caller that has
	// the scope, the key and the request is given the reply. An error is PERMISSION_DENIED, or the status that it is.
	Scope func(ctx context.Context, info *grpc.UnaryServerInfo, req any) (string, error)

	// Key returns the key of a call, and whether it has one. The default is its metadata: see KeyMetadata. For AIP-155 it is the field
	// request_id of the request, which belongs to Without then.
	Key func(ctx context.Context, req any) (string, bool)

	// Optional lets a call without a key through. Its handler runs in a transaction as well, which is committed if the status is OK, but
	// nothing is recorded, and Options do not count. If the answer to its COMMIT is lost, nothing tells whether the call was executed: the client
	// is told so, by UNKNOWN. By default such a call is refused.
	Optional bool

	// Methods says which methods need a key, by their full names: "/shop.Orders/Create". Others pass through, untouched. The default is all
	// but those whose idempotency_level is NO_SIDE_EFFECTS, and the services of gRPC itself: health, reflection, channelz.
	Methods func(fullMethod string) bool

	// Without are paths of fields that differ in every attempt and do not matter, by their names in the .proto file: "client.sent_at".
	// They are for the requests of all methods; a request that does not have such a field is not affected.
	Without []string

	// Options are for idem.Do.
	Options []idem.Option

	// Logger is told the cause of what the interceptor answers itself and is not the client's fault. A key is never shown in full. The
	// default is slog.Default().
	Logger *slog.Logger
}

// Interceptor makes the calls of a server safe to retry. It is safe for concurrent use.
type Interceptor struct {
	config Config
	server *unary.Server
}

// New returns an Interceptor, or says what is wrong with its configuration.
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
