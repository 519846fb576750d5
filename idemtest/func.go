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

// A Call is one call of the code on trial, as its callers make it. What it returns is compared between duplicates: give back what
// the callers get. An idem.Result counts as its Response.
type Call func(ctx context.Context, pool *pgxpool.Pool) (any, error)

// FuncSuite says how a function that calls idem.Do, DoTx or DoJSON is tried. Call and Effects are required.
type FuncSuite struct {
	// New makes a database with Pool and what the function needs in there. It is called for every trial anew; t ends with the
	// trial. The default is Pool alone.
	New func(t testing.TB) *pgxpool.Pool

	// Call makes a call that succeeds and has an effect: always the same, key included.
	Call Call

	// Other makes a call with the same key and another payload, which is to be refused. Without it that is not tried.
	Other Call

	// Stranger makes a call with the same key and payload for another principal, which is to succeed with an effect of its own.
	// Without it that is not tried.
	Stranger Call

	// Next makes a call with another key, which is to succeed with an effect of its own. Without it that is not tried, and a
	// function that uses one key for all is not found.
	Next Call

	// Effects counts the effects that there are by now: rows, and calls of the fakes of other systems.
	Effects func(ctx context.Context, pool *pgxpool.Pool) (int, error)

	// Patience and Within are those of HandlerSuite.
	Patience, Within time.Duration
}

// Func holds a function to what idem promises, as Handler does a handler. A caller of it asks again after every error, but for those
// that are the same next time, such as idem.ErrMismatch.
func Func(t testing.TB, s FuncSuite) {
	t.Helper()
	if s.Call == nil || s.Effects == nil {
		t.Fatal("idemtest: Call and Effects are required")
	}
	u := newSuite(t, s.Patience, s.Within)
	u.open = func(sc *scene) *subject {
		on := u.poolFor(sc, s.New, s.Effects)
		on.request, on.other, on.stranger, on.next = on.calls(s.Call), on.calls(s.Other), on.calls(s.Stranger), on.calls(s.Next)
		return on
	}
	u.run()
}

// poolFor is a subject without its requests.
func (u *suite) poolFor(sc *scene, make func(testing.TB) *pgxpool.Pool, effects func(context.Context, *pgxpool.Pool) (int, error)) *subject {
	u.Helper()
	if make == nil {
		make = func(t testing.TB) *pgxpool.Pool { return Pool(t) }
	}
	pool := make(sc)
	on := &subject{pool: pool, proxy: proxyOf(sc, pool), memory: recordsSQL}
	on.effects = func(ctx context.Context) (int, error) { return effects(ctx, on.pool) }
	return on
}

// calls makes calls on the pool that the subject has.
func (s *subject) calls(call Call) ask {
	if call == nil {
		return nil
	}
	pool := s.pool
	return func(ctx context.Context) (a answer) {
		var value any
		var err error
		if reason := recovered(func() { value, err = call(ctx, pool) }); reason != nil {
			return answer{fate: again, brief: fmt.Sprintf("by a panic (%v)", reason)}
		}
		return told(value, err)
	}
}

// final are the errors that the same call meets again.
var final = []error{
	idem.ErrMismatch, idem.ErrInvalidKey, idem.ErrInvalidScope, idem.ErrInvalidHash, idem.ErrInvalidResponse,
	idem.ErrResponseTooLarge, idem.ErrUnreadable, idem.ErrTxEnded, idem.ErrTxAborted, operation.ErrParked,
}

// told is what a caller makes of what it is given.
func told(value any, err error) answer {
	for _, refusal := range final {
		if errors.Is(err, refusal) {
			return answer{fate: refused, brief: fmt.Sprintf("by the error %q", err), err: err}
		}
	}
	if err != nil {
		return answer{fate: again, brief: fmt.Sprintf("by the error %q", err), err: err}
	}
	if result, ok := value.(idem.Result); ok {
		text := spellValue(result.Response)
		if result.Rejected {
			return answer{fate: refused, brief: fmt.Sprintf("by the rejection %d %.60q", result.Status, result.Body)}
		}
		return answer{text: text, empty: result.Status == 0 && len(result.Body) == 0, brief: fmt.Sprintf("by %d %.60q", result.Status, result.Body)}
	}
	text := spellValue(value)
	empty := value == nil || reflect.ValueOf(value).IsZero()
	return answer{text: text, empty: empty, brief: "by " + short(text)}
}

func spellValue(value any) string {
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
