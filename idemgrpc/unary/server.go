package unary

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/idem-go/idem"
)

// Config configures a Server.
type Config struct {
	Pool *pgxpool.Pool
	// Optional accepts calls without a key: the handler runs in a transaction, and the reply is not
	// recorded. By default such a call is refused.
	Optional bool
	// Without lists the paths of fields, by their names in the .proto file, in which a retry may
	// differ from the first request.
	Without []string
	Options []idem.Option // passed to idem.Do
	Logger  *slog.Logger  // the default is slog.Default()
	Package string        // the name of the interceptor's package, which is a prefix of log messages
}

// Server executes calls. It is safe for concurrent use.
type Server struct {
	config  Config
	without [][]protoreflect.Name
	methods Methods
}

// NewServer returns a Server. It fails if Pool is nil, or if Options or Without is invalid.
func NewServer(config Config) (*Server, error) {
	if config.Pool == nil {
		return nil, errors.New("pool is nil")
	}
	if err := idem.CheckOptions(config.Options...); err != nil {
		return nil, fmt.Errorf("Config.Options: %w", err)
	}
	if config.Logger == nil {
		config.Logger = slog.Default()
	}
	without, err := paths(config.Without)
	return &Server{config: config, without: without}, err
}

type txKey struct{}

// Tx returns the transaction of the handler whose context is ctx. It returns false if ctx is not
// the context of a handler.
func Tx(ctx context.Context) (pgx.Tx, bool) {
	tx, ok := ctx.Value(txKey{}).(pgx.Tx)
	return tx, ok
}
