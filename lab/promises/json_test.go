package promises_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
)

type order struct {
	ID      int64             `json:"id"`
	Total   json.Number       `json:"total"`
	At      time.Time         `json:"at"`
	Lines   []string          `json:"lines"`
	Extra   map[string]any    `json:"extra,omitempty"`
	secret  string            // not part of the JSON
	Ignored string            `json:"-"`
	Parent  *order            `json:"parent"`
	Labels  map[string]string `json:"labels"`
}

// checkJSON fails the test unless the first caller and its duplicates get the value want.
func checkJSON[T any](t *testing.T, l *ledger, key string, value, want T, body string) {
	t.Helper()
	ctx := context.Background()
	allow := cmp.AllowUnexported(order{})
	runs := 0
	var first idem.Result
	for i := range 3 {
		got, res, err := idem.DoJSON(ctx, l.pool, scope, key, hashA, func(tx pgx.Tx) (T, error) {
			runs++
			_, err := l.charge(key)(tx)
			return value, err
		})
		if diff := cmp.Diff(want, got, allow); err != nil || diff != "" {
			t.Errorf("%s, call %d: %v\n%s", key, i, err, diff)
		}
		if res.Status != 200 || string(res.Body) != body || res.Replayed != (i > 0) {
			t.Errorf("%s, call %d: %+v with body %s, want %s", key, i, res, res.Body, body)
		}
		if i == 0 {
			first = res
			first.Replayed = true
		} else if diff := cmp.Diff(first, res); diff != "" {
			t.Errorf("%s, call %d: %s", key, i, diff)
		}
	}
	if runs != 1 {
		t.Errorf("%s: fn ran %d times", key, runs)
	}
	l.wantOnce(key)
}

func TestJSONValueIsTheSameForTheFirstCallerAndEveryDuplicate(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	at := time.Date(2026, 11, 21, 1, 2, 3, 456789123, time.FixedZone("", 3600))
	full := order{ID: 9007199254740993, Total: "19.90", At: at, Lines: []string{"<a>", "é\x00"}, secret: "s", Ignored: "i",
		Parent: &order{Total: "0"}, Labels: map[string]string{}, Extra: map[string]any{"n": 1}}
	stored := full
	stored.secret, stored.Ignored = "", ""
	stored.Extra = map[string]any{"n": float64(1)} // decoded from JSON for the first caller too
	parent := `{"id":0,"total":0,"at":"0001-01-01T00:00:00Z","lines":null,"parent":null,"labels":null}`
	checkJSON(t, l, "struct", full, stored, `{"id":9007199254740993,"total":19.90,"at":"2026-11-21T01:02:03.456789123+01:00",`+
		`"lines":["\u003ca\u003e","é\u0000"],"extra":{"n":1},"parent":`+parent+`,"labels":{}}`)
	checkJSON(t, l, "pointer", &order{ID: 1, Total: "2"}, &order{ID: 1, Total: "2"},
		`{"id":1,"total":2,"at":"0001-01-01T00:00:00Z","lines":null,"parent":null,"labels":null}`)
	checkJSON[*order](t, l, "nil pointer", nil, nil, "null")
	checkJSON(t, l, "slice", []int{1, 2}, []int{1, 2}, "[1,2]")
	checkJSON(t, l, "empty slice", []int{}, []int{}, "[]")
	checkJSON[[]int](t, l, "nil slice", nil, nil, "null")
	checkJSON(t, l, "map", map[string]int{"b": 1, "a": 2}, map[string]int{"a": 2, "b": 1}, `{"a":2,"b":1}`)
	checkJSON(t, l, "string", "\"\\ é😀", "\"\\ é😀", `"\"\\ é😀"`)
	checkJSON(t, l, "number", int64(-1<<63), int64(-1<<63), "-9223372036854775808")
	checkJSON(t, l, "bool", false, false, "false")
	checkJSON(t, l, "nothing", struct{}{}, struct{}{}, "{}")
	checkJSON[any](t, l, "any", 1, float64(1), "1")
	checkJSON(t, l, "raw", json.RawMessage(`{"a": 1}`), json.RawMessage(`{"a":1}`), `{"a":1}`)
	checkJSON(t, l, "bytes", []byte{0, 255}, []byte{0, 255}, `"AP8="`)
}

func TestJSONRejectionLeavesTheValueZero(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	fn := oneRun(t, func(tx pgx.Tx) (int, error) {
		l.charge("k")(tx)
		return 7, idem.Reject(idem.Response{Status: 402, Body: []byte("not JSON")})
	})
	for i := range 2 {
		got, res, err := idem.DoJSON(ctx, l.pool, scope, "k", hashA, fn)
		if err != nil || got != 0 || !res.Rejected || res.Replayed != (i > 0) || res.Status != 402 || string(res.Body) != "not JSON" {
			t.Errorf("%d, %+v, %v", got, res, err)
		}
	}
	if l.entries("k") != 0 {
		t.Error("the rejected effect is committed")
	}
}

func TestJSONErrorOfFnIsUntouchedAndTheValueZero(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	got, res, err := idem.DoJSON(context.Background(), l.pool, scope, "k", hashA, func(tx pgx.Tx) (int, error) {
		l.charge("k")(tx)
		return 7, errBusiness
	})
	if diff := cmp.Diff(idem.Result{}, res); err != errBusiness || got != 0 || diff != "" {
		t.Errorf("%d, %v\n%s", got, err, diff)
	}
	l.wantNone("k")
	l.wantFree("k")
}

// encodesOnly can be encoded to JSON and not decoded from it.
type encodesOnly struct{}

func (encodesOnly) MarshalJSON() ([]byte, error)  { return []byte(`{"a":1}`), nil }
func (*encodesOnly) UnmarshalJSON(b []byte) error { return errors.New("cannot be decoded") }

// A value that no caller could get back is refused before the effect is committed.
func TestJSONValueThatCannotBeStoredOrReadBackIsRefusedAndRolledBack(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	refuseJSON[any](t, l, "channel", make(chan int))
	refuseJSON[any](t, l, "function", func() {})
	refuseJSON(t, l, "NaN", func() float64 { zero := 0.0; return zero / zero }())
	refuseJSON(t, l, "cycle", func() map[string]any { m := map[string]any{}; m["m"] = m; return m }())
	refuseJSON(t, l, "does not decode", encodesOnly{})
	refuseJSON[interface{ Error() string }](t, l, "interface", errBusiness)
}

func refuseJSON[T any](t *testing.T, l *ledger, key string, value T) {
	t.Helper()
	_, res, err := idem.DoJSON(context.Background(), l.pool, scope, key, hashA, func(tx pgx.Tx) (T, error) {
		_, err := l.charge(key)(tx)
		return value, err
	})
	if diff := cmp.Diff(idem.Result{}, res); err == nil || idem.Retryable(err) || diff != "" {
		t.Errorf("%s: %v\n%s", key, err, diff)
	}
	l.wantNone(key)
}

func TestJSONStoredUnderAnotherTypeIsAnErrorWithTheResult(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	_, first, err := idem.DoJSON(ctx, l.pool, scope, "k", hashA, func(tx pgx.Tx) (map[string]any, error) {
		_, err := l.charge("k")(tx)
		return map[string]any{"id": "seven", "total": 1}, err
	})
	if err != nil {
		t.Fatal(err)
	}
	got, res, err := idem.DoJSON(ctx, l.pool, scope, "k", hashA, func(pgx.Tx) (order, error) { t.Error("fn was called"); return order{}, nil })
	var wrongType *json.UnmarshalTypeError
	if !errors.As(err, &wrongType) || idem.Retryable(err) {
		t.Errorf("err = %v, want a *json.UnmarshalTypeError", err)
	}
	first.Replayed = true
	if diff := cmp.Diff(first, res); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(order{}, got, cmp.AllowUnexported(order{})); diff != "" {
		t.Errorf("half of a value was returned: %s", diff)
	}
	if wider, _, err := idem.DoJSON(ctx, l.pool, scope, "k", hashA, func(pgx.Tx) (json.RawMessage, error) { return nil, nil }); err != nil || !bytes.Equal(wider, first.Body) {
		t.Errorf("%s, %v", wider, err)
	}
	l.wantOnce("k")
}

func TestResponseThatIsNoJSONIsAnErrorWithTheResult(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	for key, body := range map[string]string{"empty": "", "text": "ok", "two values": "1 2"} {
		if _, err := idemDo(ctx, l.pool, scope, key, hashA, answer(idem.Response{Status: 201, Body: []byte(body)})); err != nil {
			t.Fatal(err)
		}
		got, res, err := idem.DoJSON(ctx, l.pool, scope, key, hashA, func(pgx.Tx) (int, error) { t.Error("fn was called"); return 0, nil })
		if err == nil || got != 0 || res.Status != 201 || string(res.Body) != body || !res.Replayed {
			t.Errorf("%s: %d, %+v, %v", key, got, res, err)
		}
	}
}
