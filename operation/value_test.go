package operation_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/operation"
)

// inner is a value behind a pointer and an interface.
type inner struct{ N int64 }

// everything is a value of every kind that JSON changes in some way.
type everything struct {
	Any      any
	Map      map[string]any
	Slice    []any
	Nil      []int
	Empty    []int
	Absent   []int `json:",omitempty"`
	Time     time.Time
	Pointer  *inner
	Null     *inner
	Left     string `json:"-"`
	Raw      json.RawMessage
	Float    float64
	Large    uint64
	unseen   int
	Narrowed fmt.Stringer `json:",omitempty"`
}

// beyond is a number that no float64 is.
const beyond = int64(1)<<53 + 1

func wide() everything {
	now := time.Now()
	return everything{
		Any: beyond, Map: map[string]any{"id": beyond, "list": []any{beyond, 1.5, "x", nil, true}}, Slice: []any{uint64(math.MaxUint64)},
		Empty: []int{}, Absent: []int{}, Time: now, Pointer: &inner{beyond}, Left: "left out", Raw: json.RawMessage(`{"a" :1}`), Float: 0.1, Large: math.MaxUint64, unseen: 7,
	}
}

// shown tells everything that a function may see of a value.
func shown(v everything, err error) string {
	return fmt.Sprintf("%#v %#v %#v %#v %#v %#v %#v %v %s %s %v %v %v %v", v.Any, v.Map, v.Slice, v.Nil, v.Empty, v.Absent, v.Time, v.Pointer, v.Left, v.Raw, v.Float, v.Large, v.unseen, err)
}

// The function goes its way by values, too. What it sees is what is stored, from the first run on, and no number changes on its way.
func TestValues_AreTheSameInEveryRun(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	var seen []map[string]string
	d := operation.Define("values", func(op *operation.Op, in everything) (idem.Response, error) {
		saw := map[string]string{"input": shown(in, nil)}
		in.Map["id"] = "changed" // by this run alone
		saw["tx"] = shown(operation.Tx(op, "tx", func(pgx.Tx) (everything, error) { return wide(), nil }))
		saw["call"] = shown(operation.Call(op, "call", operation.Keyed(time.Hour), func(context.Context, string) (everything, error) { return wide(), nil }))
		saw["found"] = shown(operation.Call(op, "found", operation.Asked(func(context.Context, string) (everything, bool, error) {
			return wide(), true, nil
		}).WithBackoff(time.Millisecond, time.Millisecond), func(context.Context, string) (everything, error) { return everything{}, errTimeout }))
		if err := operation.Signal(t.Context(), s.pool, op.ID(), "signal", wide()); err != nil {
			return idem.Response{}, err
		}
		saw["await"] = shown(operation.Await[everything](op, "signal", time.Hour))
		seen = append(seen, saw)
		return created, longSleep(op, "pause")
	})
	for range 3 {
		if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, wide(), idem.WithWait(0)); err != nil && !errors.Is(err, idem.ErrInProgress) {
			t.Fatal(err)
		}
		s.elapse()
	}
	if len(seen) != 2 {
		t.Fatalf("%d runs", len(seen))
	}
	if diff := cmp.Diff(seen[0], seen[1]); diff != "" {
		t.Errorf("(-first run +later):\n%s", diff)
	}
	for where, what := range seen[0] {
		t.Log(where, what)
	}
}

func TestValues_NumberInAnInterfaceKeepsItsDigits(t *testing.T) {
	t.Parallel()
	for _, n := range []any{beyond, -beyond, uint64(math.MaxUint64), int64(math.MinInt64), 7, 1.5} {
		s := newShop(t)
		var got any
		d := operation.Define("number", func(op *operation.Op, in any) (idem.Response, error) {
			back, err := operation.Tx(op, "tx", func(pgx.Tx) (map[string]any, error) { return map[string]any{"n": in}, nil })
			got = back["n"]
			return created, err
		})
		if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, n); err != nil || got != json.Number(fmt.Sprint(n)) {
			t.Errorf("%v has become %v (%T), %v", n, got, got, err)
		}
	}
}

// What cannot be stored is not seen by the function either.
func TestValues_UnstorableIsAnErrorOfTheStep(t *testing.T) {
	t.Parallel()
	first := sameTwice(t, func(op *operation.Op) map[string]string {
		_, err := operation.Tx(op, "tx", func(tx pgx.Tx) (float64, error) { return math.NaN(), nil })
		return map[string]string{"tx": fmt.Sprint(err)}
	})
	if first["tx"] == "<nil>" {
		t.Error(first)
	}
}
