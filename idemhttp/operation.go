package idemhttp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
)

// Operation is work of several steps. *operation.Definition implements it.
type Operation[In any] interface {
	Do(ctx context.Context, pool *pgxpool.Pool, scope, key string, hash idem.Hash, in In, opts ...idem.Option) (idem.Result, error)
}

// starter is an Operation that can be stored for an operation.Worker to run. *operation.Definition
// implements it.
type starter[In any] interface {
	Start(ctx context.Context, tx pgx.Tx, scope, key string, hash idem.Hash, in In, opts ...idem.Option) (id string, err error)
}

// OperationConfig configures Operate. Only StatusPath is required.
type OperationConfig[In any] struct {
	// Input returns the input of the operation for a request. It gets a copy of the request, with
	// the whole body. If Input returns an error, the answer is the *Problem in the error, 503 for a
	// transient error, and otherwise 500. The default decodes the body as JSON, and answers 400 if
	// that fails.
	Input func(r *http.Request) (In, error)

	// StatusPath is the path at which clients ask for the status of an operation, for example
	// "/operations/{id}", where {id} stands for the ID of the operation. The header Location of a
	// 202 has this path. Register OperationHandler.Status at this path.
	StatusPath string

	// Patience is how long a request waits for the end of the operation before it is answered with
	// 202. The default is 2 seconds.
	Patience time.Duration

	// MaxRunning limits how many operations this process runs at once, including operations whose
	// requests were answered with 202. A request above the limit is answered with 202 as soon as
	// its operation is stored. An operation.Worker must then run the operation. If the Operation
	// has no method Start, a request above the limit is answered with 503. The default is 1000.
	MaxRunning int

	// Reasons adds the reason code and text to the status of a parked operation. The text names
	// steps, and may quote the beginning of an error. By default clients do not get the reason; the
	// log and the tools for operators show it.
	Reasons bool

	// HideSteps leaves out the fields of the status that contain names of steps and signals: step,
	// waits_for, steps and reason_text.
	HideSteps bool
}

// OperationHandler answers requests with the result of an operation. It is safe for concurrent use.
type OperationHandler struct {
	*Middleware
	statusPath string
	patience   time.Duration
	reasons    bool
	hideSteps  bool
	maxRunning int
	prepare    func(r *http.Request) (*prepared, error)
	runs       runs
}

// prepared is an operation together with the input of a request.
type prepared struct {
	do    func(ctx context.Context, c *claim) (idem.Result, error)
	start func(ctx context.Context, tx pgx.Tx, c *claim) error // nil if the Operation has no Start
}

// Operate returns a handler that runs the operation for each request, with the key, scope and
// fingerprint that the Config of m defines. It returns an error if config.StatusPath does not
// contain {id}.
//
// If the operation ends within config.Patience, the client gets the recorded answer of the
// operation. After that time the handler answers 202, but never before the operation is stored, so
// that an accepted operation is never lost. The body of the 202 is the status of the operation, and
// its Location is the path of the status. A request is rejected for the same reasons as under Wrap.
// If something fails after the operation was stored, the answer is 202 too, because a Worker
// continues the operation.
//
// The operation does not end with its request. When the client stops waiting, the process continues
// the operation. [OperationHandler.Shutdown] waits for the end of such operations. If the process
// dies, an operation.Worker in another process continues the operation, so run one.
func Operate[In any](m *Middleware, operation Operation[In], config OperationConfig[In]) (*OperationHandler, error) {
	config.Patience, config.MaxRunning = cmp.Or(config.Patience, 2*time.Second), cmp.Or(config.MaxRunning, 1000)
	switch {
	case m == nil || operation == nil:
		return nil, errors.New("idemhttp: Operate: the Middleware or the Operation is nil")
	case !strings.HasPrefix(config.StatusPath, "/") || strings.Count(config.StatusPath, "{id}") != 1:
		return nil, fmt.Errorf("idemhttp: OperationConfig.StatusPath: %q is not a path with one {id} in it", config.StatusPath)
	case config.Patience < 0:
		return nil, fmt.Errorf("idemhttp: OperationConfig.Patience: %v is negative", config.Patience)
	case config.MaxRunning < 0:
		return nil, fmt.Errorf("idemhttp: OperationConfig.MaxRunning: %d is negative", config.MaxRunning)
	}
	if config.Input == nil {
		config.Input = inputFromJSON[In]
	}
	return &OperationHandler{
		Middleware: m, statusPath: config.StatusPath, patience: config.Patience, reasons: config.Reasons, hideSteps: config.HideSteps,
		maxRunning: config.MaxRunning,
		prepare: func(r *http.Request) (*prepared, error) {
			in, err := config.Input(r)
			return prepare(m, operation, in), err
		},
	}, nil
}

func prepare[In any](m *Middleware, operation Operation[In], in In) *prepared {
	p := &prepared{do: func(ctx context.Context, c *claim) (idem.Result, error) {
		return operation.Do(ctx, m.pool, c.scope, c.key, c.hash, in, m.doOptions...)
	}}
	if s, ok := operation.(starter[In]); ok {
		p.start = func(ctx context.Context, tx pgx.Tx, c *claim) error {
			_, err := s.Start(ctx, tx, c.scope, c.key, c.hash, in, m.startOptions...)
			return err
		}
	}
	return p
}

func inputFromJSON[In any](r *http.Request) (in In, err error) {
	decoder := json.NewDecoder(r.Body)
	if err = decoder.Decode(&in); err == nil && decoder.More() {
		err = errors.New("more than one JSON document")
	}
	if err != nil {
		return in, &Problem{Type: TypeInvalidJSON, Title: "The body is not valid JSON input of this operation",
			Status: http.StatusBadRequest, SafeNewKey: true}
	}
	return in, nil
}
