package idemhttp

import (
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

// Operation is work of several steps: an *operation.Definition.
type Operation[In any] interface {
	Do(ctx context.Context, pool *pgxpool.Pool, scope, key string, hash idem.Hash, in In, opts ...idem.Option) (idem.Result, error)
}

// starter is an Operation that can be left to a Worker from its beginning, as an *operation.Definition can.
type starter[In any] interface {
	Start(ctx context.Context, tx pgx.Tx, scope, key string, hash idem.Hash, in In, opts ...idem.Option) (id string, err error)
}

// OperationConfig says how requests run an operation. StatusPath has to be set.
type OperationConfig[In any] struct {
	// Input makes the input of the operation out of a request. It has a copy of the request, and the whole body. An error is 500, or
	// the *Problem that it is. The default takes the body as JSON, and answers 400 if it is none.
	Input func(r *http.Request) (In, error)

	// StatusPath is where clients ask how far an operation is, with {id} in the place of its id: "/operations/{id}". It is sent as
	// the Location of a 202. Register OperationHandler.Status there.
	StatusPath string

	// Patience is for how long a request waits for the end of the operation, before it is answered 202. The default is 2 seconds.
	Patience time.Duration

	// MaxRunning bounds how many operations this process works on at once, those whose requests have been answered 202 included.
	// A request above that is answered 202 as soon as its operation is durable, and an operation.Worker does all of the work, so
	// run one; where the Operation has no Start, such a request is 503. The default is 1000.
	MaxRunning int

	// Reasons adds to the status of a parked operation its reason: the code and the text. The text names steps, and may quote the
	// beginning of an error. By default clients do not get it; the log and the tools of the operator have it.
	Reasons bool

	// HideSteps leaves the names of steps and signals out of the status: the fields step, waits_for, steps and reason_text.
	HideSteps bool
}

const (
	defaultPatience   = 2 * time.Second
	defaultMaxRunning = 1000
)

// OperationHandler answers requests by an operation. It is safe for concurrent use.
type OperationHandler struct {
	*Middleware
	statusPath string
	patience   time.Duration
	reasons    bool
	hideSteps  bool
	most       int // of runs
	prepare    func(r *http.Request) (*prepared, error)
	runs       runs
}

// prepared is an operation with the input of a request.
type prepared struct {
	do    func(ctx context.Context, c *claim) (idem.Result, error)
	start func(ctx context.Context, tx pgx.Tx, c *claim) error // nil if it has no Start
}

// Operate returns a handler whose requests run the operation, under the key, the scope and the fingerprint that the Config of m says.
// It is an error if the config has no StatusPath with {id} in it.
//
// A request is answered by the operation if that ends within config.Patience: by the answer of its function, or by the replay of
// it, exactly as it is recorded. Otherwise the answer is 202, with the status of the operation as its body and the Location of
// that, as soon as the operation is durable: a 202 is never lost. What refuses a request elsewhere refuses it here. Where something
// fails after the operation was begun the answer is 202 as well, because it goes on.
//
// The operation does not end with its request: the process goes on with it while the client waits for nothing any more, or has
// gone. [OperationHandler.Shutdown] waits for what goes on. If the process dies another one goes on: run an operation.Worker.
func Operate[In any](m *Middleware, operation Operation[In], config OperationConfig[In]) (*OperationHandler, error) {
	fill(&config.Patience, defaultPatience)
	fill(&config.MaxRunning, defaultMaxRunning)
	switch {
	case m == nil || operation == nil:
		return nil, errors.New("idemhttp: Operate: the Middleware or the operation is nil")
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
		most: config.MaxRunning,
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
		err = errors.New("there is more than one document")
	}
	if err != nil {
		return in, invalidInput()
	}
	return in, nil
}
