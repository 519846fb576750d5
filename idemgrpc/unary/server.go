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
	// Execute a call without a key, in a transaction without a record. The default is to refuse it.
	Optional bool
	// Paths of fields that do not make two requests different, by their names in the .proto file.
	Without []string
	Options []idem.Option // passed to idem.Do
	Logger  *slog.Logger  // default slog.Default()
	Package string        // name of the interceptor's package, a prefix of log messages
}

// Server executes calls. It is safe for concurrent use.
type Server struct {
	config  Config
	without [][]protoreflect.Name
	methods Methods
}

// NewServer returns a Server. It fails if Pool is nil, or if Options or Without are invalid.
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

// Tx returns the transaction of the call whose handler has the context ctx, and whether there is
// one.
func Tx(ctx context.Context) (pgx.Tx, bool) {
	tx, ok := ctx.Value(txKey{}).(pgx.Tx)
	return tx, ok
}
