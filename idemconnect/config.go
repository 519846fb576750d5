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

// Config says how the interceptor of a server behaves. Only Scope has to be set.
type Config struct {
	// Scope says who is calling and which operation: idem.Scope(tenant, req.Spec().Procedure), say. Take who from what the call proves, such
	// as its credential, and as the principal, not the credential itself: after a rotation, a retry is still a retry. A caller that has
	// the scope, the key and the request is given the reply. An error is CodePermissionDenied, or the *connect.Error that it is.
	Scope func(ctx context.Context, req connect.AnyRequest) (string, error)

	// Key returns the key of a call, and whether it has one. The default is its header: see KeyHeader. For AIP-155 it is the field
	// request_id of the request, which belongs to Without then.
	Key func(ctx context.Context, req connect.AnyRequest) (string, bool)

	// Optional lets a call without a key through. Its handler runs in a transaction as well, which is committed if there is no error, but
	// nothing is recorded, and Options do not count. If the answer to its COMMIT is lost, nothing tells whether the call was executed: the client
	// is told so, by CodeUnknown. By default such a call is refused.
	Optional bool

	// Methods says which methods need a key, by their full names: "/shop.Orders/Create". Others pass through, untouched. The default is all
	// but those whose idempotency_level is NO_SIDE_EFFECTS, and the services of gRPC itself: health, reflection, channelz.
	Methods func(procedure string) bool

	// Without are paths of fields that differ in every attempt and do not matter, by their names in the .proto file: "client.sent_at".
	// They are for the requests of all methods; a request that does not have such a field is not affected.
	Without []string

	// Options are for idem.Do.
	Options []idem.Option

	// Logger is told the cause of what the interceptor answers itself and is not the client's fault. A key is never shown in full. The
	// default is slog.Default().
	Logger *slog.Logger
}

// What is said in headers, whatever the protocol is.
const (
	KeyHeader      = "Idempotency-Key"      // of a call: its key
	ReplayedHeader = "Idempotency-Replayed" // of an answer: "true" if it was recorded by an earlier call
)

// New returns the interceptor of a server, for connect.WithInterceptors. Put it behind those that authenticate the caller. It leaves calls that a client
// makes alone.
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

// keyIn returns the key in the header of a call. More than one are no key that the caller can have meant: they are an invalid one.
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
