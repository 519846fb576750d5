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
	// Scope returns the scope of a call, which identifies the caller and the tool, for example
	// idem.Scope(tenant, req.Params.Name). A call with the scope, key and arguments of an earlier
	// call gets the recorded result of the earlier call. So identify the caller by verified
	// credentials, such as req.Extra.TokenInfo, and not by anything that the client can choose. If
	// Scope returns an error, the client gets the error and the call is not executed.
	Scope func(ctx context.Context, req *mcp.CallToolRequest) (string, error)

	// Tools are the tools that need a key. Calls of other tools pass through untouched.
	Tools map[string]Source

	// RecordError reports whether to record a result with isError. The writes of the handler are
	// rolled back in either case. Later calls with the key get the recorded result. By default, no
	// result with isError is recorded.
	RecordError func(*mcp.CallToolResult) bool

	// Options are passed to idem.Do.
	Options []idem.Option

	// Logger logs the causes of refusals with the reasons OutcomeUnknown, NotExecuted and Broken.
	// Keys are abridged in the log. The default is slog.Default().
	Logger *slog.Logger
}

// Source says how to get the key of a call if the client has sent no key in _meta under [KeyMeta]
// and none in the HTTP header [KeyHeader]. [FromClient], [FromArgument] and [FromArguments] return
// a Source.
type Source struct {
	kind     sourceKind
	argument []string // the name of the argument, and the names of the members that lead to the key
	within   time.Duration
}

type sourceKind int

const (
	fromClient sourceKind = iota
	fromArgument
	fromArguments
)

// FromClient returns a Source that requires a key from the client: a call without a key in _meta
// and in the header is refused.
func FromClient() Source { return Source{kind: fromClient} }

// FromArgument returns a Source that takes the key from a string argument of the tool. If the
// argument is an object, further names lead to the member with the key: the Universal Commerce
// Protocol prescribes FromArgument("meta", "idempotency-key"). The host program must set the
// argument. A model would invent another key when it repeats a call.
//
// tools/list shows a tool with this Source with idempotentHint, because a second call with the same
// arguments has no effect while the record of the first call is stored.
func FromArgument(name string, names ...string) Source {
	return Source{kind: fromArgument, argument: append([]string{name}, names...)}
}

// FromArguments returns a Source that derives the key from all arguments. Until the given duration
// has passed since the first call, another call with the same arguments counts as a repetition.
// After the duration the record expires, even if Config.Options set another TTL.
//
// If a caller wants the same effect twice within that duration, the second call has no effect and
// gets the result of the first call. Use FromArguments only for tools for which that cannot happen
// or does no harm.
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
