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
	// returns a *connect.Error, the call fails with it. After any other error it fails with
	// CodePermissionDenied.
	Scope func(ctx context.Context, req connect.AnyRequest) (string, error)

	// Key returns the key of a call, and whether it has one. The default reads the header
	// KeyHeader. For AIP-155, return the field request_id of the request, and list that field in
	// Without.
	Key func(ctx context.Context, req connect.AnyRequest) (string, bool)

	// Optional lets a call without a key through. By default such a call is refused.
	//
	// The handler also runs in a transaction, which is committed if there is no error. Nothing is
	// recorded, and Options do not apply. If the answer to the COMMIT is lost, no record shows
	// whether the call was executed, and the client gets CodeUnknown.
	Optional bool

	// Methods reports whether a method, such as "/shop.Orders/Create", needs a key. Other methods
	// pass through untouched. The default excludes methods whose idempotency_level is
	// NO_SIDE_EFFECTS, and gRPC's own services: health, reflection, channelz.
	Methods func(procedure string) bool

	// Without lists fields that are not compared with the earlier request of a key, because they
	// differ in every attempt. A field is a path of names in the .proto file: "client.sent_at". The
	// list applies to all methods. A path that a request does not have is ignored.
	Without []string

	// Options are passed to idem.Do.
	Options []idem.Option

	// Logger logs the cause of the interceptor's own answers, except for mistakes of the client.
	// Keys are abridged in the log. The default is slog.Default().
	Logger *slog.Logger
}

// Names of headers, in all protocols.
const (
	KeyHeader      = "Idempotency-Key"      // in a call: its key
	ReplayedHeader = "Idempotency-Replayed" // in an answer: "true" if an earlier call recorded it
)

// New returns the interceptor of a server, for connect.WithInterceptors. Install it behind
// interceptors that authenticate the caller. Calls of clients pass through it. New fails if pool is
// nil or if the configuration is invalid.
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

// keyIn returns the key in the header of a call. Several keys are ambiguous: keyIn then returns "",
// which is invalid.
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
