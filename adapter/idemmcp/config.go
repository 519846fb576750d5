package idemmcp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/idem-go/idem"
)

// Config configures a Server. Scope and Tools are required.
type Config struct {
	// Scope returns the scope of a call, made from the caller and the tool, for example
	// idem.Scope(tenant, req.Params.Name). A caller that sends the same scope, key and arguments
	// gets the recorded result, so identify the caller by verified credentials, such as
	// req.Extra.TokenInfo, and not by anything that the client can choose. A call for which Scope
	// returns an error is refused with that error.
	Scope func(ctx context.Context, req *mcp.CallToolRequest) (string, error)

	// Tools are the tools that need a key. Calls of other tools pass through untouched.
	Tools map[string]Source

	// RecordError reports whether a result with isError is recorded. If so, the writes of the
	// handler are rolled back all the same, and later calls with the key get this result. By
	// default no such result is recorded.
	RecordError func(*mcp.CallToolResult) bool

	// Options are passed to idem.Do.
	Options []idem.Option

	// Logger logs the cause of the refusals that are not mistakes of the client. Keys are abridged
	// in the log. The default is slog.Default().
	Logger *slog.Logger
}

// Source says where to find the key of a call that has none in _meta, under [KeyMeta], and none in
// the HTTP header [KeyHeader]. Make one with [FromClient], [FromArgument] or [FromArguments].
type Source struct {
	kind     sourceKind
	argument []string // the names that lead to it
	within   time.Duration
}

type sourceKind int

const (
	fromClient sourceKind = iota
	fromArgument
	fromArguments
)

// FromClient refuses a call that has no key in _meta and none in the header.
func FromClient() Source { return Source{kind: fromClient} }

// FromArgument takes the key from an argument of the tool, a string. Further names lead to a member
// of an object: FromArgument("meta", "idempotency-key") is the place that the Universal Commerce
// Protocol prescribes. The host must set the argument, and not the model: a model would make up
// another key for a repetition.
//
// Such a tool is listed with idempotentHint: a call with the same arguments has no further effect
// as long as its record is retained.
func FromArgument(name string, names ...string) Source {
	return Source{kind: fromArgument, argument: append([]string{name}, names...)}
}

// FromArguments derives the key from all arguments: a call with the same arguments, less than this
// time after the first one, is taken for a repetition. The record expires after that time, whatever
// the other options say.
//
// The risk is a caller that means to do the same thing twice in this time: the second call has no
// effect and gets the result of the first one. Use FromArguments only for tools for which that
// cannot happen or does no harm.
func FromArguments(within time.Duration) Source { return Source{kind: fromArguments, within: within} }

func (s Source) check(tool string) error {
	switch {
	case s.kind == fromArgument && slices.Contains(s.argument, ""):
		return fmt.Errorf("tool %q: FromArgument needs the name of an argument", tool)
	case s.kind == fromArguments && s.within <= 0:
		return fmt.Errorf("tool %q: FromArguments needs a duration above zero", tool)
	}
	return nil
}

// Server makes calls of tools safe to repeat. It is safe for concurrent use.
type Server struct {
	pool   *pgxpool.Pool
	config Config
}

// New returns a Server. It fails if pool is nil or if the configuration is invalid.
func New(pool *pgxpool.Pool, config Config) (*Server, error) {
	switch {
	case pool == nil:
		return nil, errors.New("idemmcp: pool is nil")
	case config.Scope == nil:
		return nil, errors.New("idemmcp: Config.Scope is required: it says whose keys these are")
	case len(config.Tools) == 0:
		return nil, errors.New("idemmcp: Config.Tools is required: it says which tools need a key")
	}
	for name, source := range config.Tools {
		if err := source.check(name); err != nil {
			return nil, fmt.Errorf("idemmcp: Config.Tools: %w", err)
		}
	}
	if err := idem.CheckOptions(config.Options...); err != nil {
		return nil, fmt.Errorf("idemmcp: Config.Options: %w", err)
	}
	if config.Logger == nil {
		config.Logger = slog.Default()
	}
	return &Server{pool: pool, config: config}, nil
}
