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

// Config says how a Server behaves.
type Config struct {
	Pool     *pgxpool.Pool
	Optional bool          // a call without a key is executed: its transaction is recorded nowhere
	Without  []string      // paths of fields that do not make two requests different, by their names in the .proto file
	Options  []idem.Option // for idem.Do
	Logger   *slog.Logger  // the default is slog.Default()
	Package  string        // the interceptor's, with which what it says in its log begins
}

// Server executes calls. It is safe for concurrent use.
type Server struct {
	config  Config
	without [][]protoreflect.Name
	methods Methods
}

// NewServer returns a Server, or says what is wrong with its configuration.
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

// Tx returns the transaction of the call whose handler has the context, if there is one.
func Tx(ctx context.Context) (pgx.Tx, bool) {
	tx, ok := ctx.Value(txKey{}).(pgx.Tx)
	return tx, ok
}
