package idemriver_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/adapter/idemriver"
	"github.com/idem-go/idem/operation"
)

// countingCodec is a codec of one's own.
type countingCodec struct{ encoded *atomic.Int64 }

func (c countingCodec) Encode(value any) ([]byte, error) {
	c.encoded.Add(1)
	b, err := json.Marshal(value)
	return append([]byte("own"), b...), err
}

func (countingCodec) Decode(stored []byte, value any) error {
	return json.Unmarshal(stored[len("own"):], value)
}

func TestDefinitionTakesTheOptionsOfAnOperationAndResolvesByThem(t *testing.T) {
	t.Parallel()
	_, pool := newDatabase(t)
	codec := countingCodec{&atomic.Int64{}}
	var got string
	d := idemriver.Define("own codec", func(op *operation.Op, in string) (_ idem.Response, err error) {
		got, err = operation.Call(op, "call", operation.Once, func(context.Context, string) (string, error) { return "", errors.New("no answer") })
		return created, err
	}, operation.WithCodec(codec))
	if _, err := d.Do(t.Context(), pool, scope, "k", hash, "in"); !errors.Is(err, operation.ErrParked) || codec.encoded.Load() == 0 {
		t.Fatal(err)
	}
	var id string
	if err := pool.QueryRow(t.Context(), `SELECT id::text FROM idem.operations`).Scan(&id); err != nil {
		t.Fatal(err)
	}
	if err := d.Resolve(t.Context(), pool, id, operation.Happened("yes")); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Do(t.Context(), pool, scope, "k", hash, "in"); err != nil || got != "yes" {
		t.Errorf("%q, %v", got, err)
	}
}
