package idemtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/operation"
)

// A Call calls the code under test once, as its callers do, and returns what the callers get. The
// suite compares that value between duplicates. Of an idem.Result it compares the Response.
type Call func(ctx context.Context, pool *pgxpool.Pool) (any, error)

// FuncSuite configures Func, for a function that calls idem.Do, DoTx or DoJSON. Call and Effects
// are required.
type FuncSuite struct {
	// New creates a database with Pool and everything in it that the function needs. The suite
	// calls New once for every trial, and t ends with the trial. The default is Pool.
	New func(t testing.TB) *pgxpool.Pool

	// Call makes a call that succeeds and has an effect. It must make the same call each time, key
	// included.
	Call Call

	// Other makes a call with the same key and another payload, which must be refused. If Other is
	// nil, the suite skips this trial.
	Other Call

	// Stranger makes a call with the same key and payload for another principal. The call must
	// succeed and have its own effect. If Stranger is nil, the suite skips this trial.
	Stranger Call

	// Next makes a call with another key. The call must succeed and have its own effect. If Next is
	// nil, the suite skips this trial and does not detect a function that uses one key for all
	// calls.
	Next Call

	// Effects returns the number of effects so far: rows in the database, and calls to the fakes of
	// other systems.
	Effects func(ctx context.Context, pool *pgxpool.Pool) (int, error)

	// Patience and Within have the meaning of the fields of HandlerSuite.
	Patience, Within time.Duration
}

// Func tests that a function keeps the promises of idem, and reports like Handler. The suite
// retries after every error except those that the same call would meet again, such as
// idem.ErrMismatch.
func Func(t testing.TB, s FuncSuite) {
	t.Helper()
	if s.Call == nil || s.Effects == nil {
		t.Fatal("idemtest: Call and Effects are required")
	}
	u := newSuite(t, s.Patience, s.Within)
	u.open = func(sc *trialTB) *subject {
		on := u.poolFor(sc, s.New, s.Effects)
		on.request, on.other, on.stranger, on.next = on.calls(s.Call), on.calls(s.Other), on.calls(s.Stranger), on.calls(s.Next)
		return on
	}
	u.run()
}

// poolFor creates a subject that has a pool but no requests yet. A nil make means Pool.
func (u *suite) poolFor(sc *trialTB, make func(testing.TB) *pgxpool.Pool, effects func(context.Context, *pgxpool.Pool) (int, error)) *subject {
	u.Helper()
	if make == nil {
		make = func(t testing.TB) *pgxpool.Pool { return Pool(t) }
	}
	pool := make(sc)
	on := &subject{pool: pool, proxy: proxyOf(sc, pool), countSQL: recordsSQL}
	on.effects = func(ctx context.Context) (int, error) { return effects(ctx, on.pool) }
	return on
}

// calls returns an ask that makes call on the current pool of the subject. A panic counts as a
// failure that may be retried.
func (s *subject) calls(call Call) ask {
	if call == nil {
		return nil
	}
	pool := s.pool
	return func(ctx context.Context) (a answer) {
		var value any
		var err error
		if reason := recovered(func() { value, err = call(ctx, pool) }); reason != nil {
			return answer{outcome: again, brief: fmt.Sprintf("by a panic (%v)", reason)}
		}
		return answerTo(value, err)
	}
}

// final lists the errors that the same call would return again: a client does not retry them.
var final = []error{
	idem.ErrMismatch, idem.ErrInvalidKey, idem.ErrInvalidScope, idem.ErrInvalidHash, idem.ErrInvalidResponse,
	idem.ErrResponseTooLarge, idem.ErrUnreadable, idem.ErrTxEnded, idem.ErrTxAborted, operation.ErrParked,
}

// answerTo converts the result of a Call to an answer. Errors in final and rejections are refusals.
// Any other error means that the caller retries.
func answerTo(value any, err error) answer {
	for _, refusal := range final {
		if errors.Is(err, refusal) {
			return answer{outcome: refused, brief: fmt.Sprintf("by the error %q", err), err: err}
		}
	}
	if err != nil {
		return answer{outcome: again, brief: fmt.Sprintf("by the error %q", err), err: err}
	}
	if result, ok := value.(idem.Result); ok {
		text := valueText(result.Response)
		if result.Rejected {
			return answer{outcome: refused, brief: fmt.Sprintf("by the rejection %d %.60q", result.Status, result.Body)}
		}
		return answer{text: text, empty: result.Status == 0 && len(result.Body) == 0, brief: fmt.Sprintf("by %d %.60q", result.Status, result.Body)}
	}
	text := valueText(value)
	empty := value == nil || reflect.ValueOf(value).IsZero()
	return answer{text: text, empty: empty, brief: "by " + short(text)}
}

func valueText(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprintf("%+v", value)
	}
	return string(text)
}

func short(text string) string {
	if len(text) > 80 {
		return text[:80] + "…"
	}
	return text
}
