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

// A Call calls the code under test once and returns the value that a caller gets. Duplicates must
// get equal values. If the value is an idem.Result, the suite compares only its Response.
type Call func(ctx context.Context, pool *pgxpool.Pool) (any, error)

// FuncSuite configures the test suite Func for a function that calls idem.Do, DoTx or DoJSON. The
// fields Call and Effects are required.
type FuncSuite struct {
	// New calls Pool to create a database, sets up everything in it that the function needs, and
	// returns the pool. The suite calls New once for every trial. The cleanups of t run at the end
	// of that trial. If New is nil, the suite calls Pool.
	New func(t testing.TB) *pgxpool.Pool

	// Call makes a call that succeeds and has an effect. It must make the same call each time, key
	// included.
	Call Call

	// Other makes a call with the same key and another payload. The code must refuse this call. If
	// Other is nil, the suite skips the trial of a changed payload.
	Other Call

	// Stranger makes a call with the same key and payload for another principal. The call must
	// succeed and have its own effect. If Stranger is nil, the suite skips the trials of a second
	// principal.
	Stranger Call

	// Next makes a call with another key. The call must succeed and have its own effect. If Next is
	// nil, the suite skips the trial of a second key and cannot detect a function that uses one key
	// for all calls.
	Next Call

	// Effects returns the number of effects so far. It counts the rows that the function wrote to
	// the database and the calls that it made to the fakes of other systems.
	Effects func(ctx context.Context, pool *pgxpool.Pool) (int, error)

	// Patience and Within mean the same as in HandlerSuite.
	Patience, Within time.Duration
}

// Func tests that a function keeps the promises of idem. Like Handler, it reports each broken
// promise once, by t.Errorf. The suite retries a call after every error, unless a retry would get
// the same error again, as with idem.ErrMismatch.
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

// poolFor creates the subject of one trial: the code under test with its pool, but without any
// requests yet. The result of make becomes the pool. If make is nil, the pool is the result of
// Pool.
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

// calls returns a function that passes the current pool of s to call. If call panics, the answer
// says that the caller must retry.
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

// final lists the errors that a retry would get again. A client does not retry after them.
var final = []error{
	idem.ErrMismatch, idem.ErrInvalidKey, idem.ErrInvalidScope, idem.ErrInvalidHash, idem.ErrInvalidResponse,
	idem.ErrResponseTooLarge, idem.ErrUnreadable, idem.ErrTxEnded, idem.ErrTxAborted, operation.ErrParked,
}

// answerTo converts the result of a Call to an answer. A rejection, or an error from the list
// final, becomes a refusal. After any other error the caller should retry.
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
