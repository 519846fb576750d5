package command_test

import (
	"context"
	"encoding/base64"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/operation"
	"github.com/idem-go/idem/seal"
)

func TestShow_LinksParentAndChild(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	d.keepOperations()
	child := operation.ChildID(waitsID, "ship")
	d.exec(`UPDATE idem.steps SET kind = 'child', name = 'ship', due_at = NULL WHERE operation_id = $1 AND kind = 'await'`, waitsID)
	d.exec(`UPDATE idem.operations SET parent = $1, id = $2 WHERE id = $3`, waitsID, child, doneID)
	for _, test := range []struct{ id, text, json string }{
		{waitsID, "operation " + child + ", its child, to end", `"child": "` + child + `"`},
		{child, waitsID, `"parent": "` + waitsID + `"`},
	} {
		d.idem("operation", "show", test.id).want(t, 0, test.text)
		d.idem("operation", "show", test.id, "--json").want(t, 0, test.json)
	}
}

func TestResolve_NamesOneOfSeveralCalls(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	travel := operation.Define("travel", func(op *operation.Op, in string) (idem.Response, error) {
		calls := operation.Parallel(op)
		var booked []*operation.Value[string]
		for _, name := range []string{"air", "room"} {
			booked = append(booked, operation.Go(calls, name, operation.Once, func(context.Context, string) (string, error) {
				return "", operation.Unknown(errors.New("timeout"))
			}))
		}
		if err := calls.Wait(); err != nil {
			return idem.Response{}, err
		}
		air, err := booked[0].Value()
		room, other := booked[1].Value()
		return idem.Response{Status: 201, Body: []byte(air + " and " + room)}, errors.Join(err, other)
	})
	call := func() (idem.Result, error) {
		return travel.Do(t.Context(), d.pool, scope, placed, idem.HashBytes(), "the input")
	}
	if _, err := call(); !errors.Is(err, operation.ErrParked) {
		t.Fatal(err)
	}
	id := d.operationID()
	air, room := operation.CallKey(id, "call", "air"), operation.CallKey(id, "call", "room")
	d.idem("operation", "show", id, "--full").want(t, 0, air, room, "of step room", "begun", "call_in_doubt")
	d.idem("operation", "resolve", id, "--reason", "INC-7", "--not-happened", "--step", "sea", "--yes").want(t, 5, "")
	d.idem("operation", "resolve", id, "--reason", "INC-7", "--happened", "--value", `"a room"`, "--step", "room", "--yes").want(t, 0, "recorded that")
	if _, err := call(); !errors.Is(err, operation.ErrParked) {
		t.Fatal(err)
	}
	d.idem("operation", "resolve", id, "--reason", "INC-7", "--happened", "--value", `"a flight"`, "--yes").want(t, 0, "recorded that")
	if res, err := call(); err != nil || string(res.Body) != "a flight and a room" {
		t.Errorf("%s, %v", res.Body, err)
	}
}

// A sealed operation parks, a person resolves its call, and the operation completes.
func TestResolve_OfASealedOperation(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	secret := []byte(strings.Repeat("s", 32))
	sealed := idem.WithSealer(seal.New(seal.Keys{Primary: "2026-11", Secrets: map[string][]byte{"2026-11": secret}}))
	pay := operation.Define("pay", func(op *operation.Op, in string) (idem.Response, error) {
		if _, err := operation.Tx(op, "reserve", func(pgx.Tx) (string, error) { return "the value", nil }); err != nil {
			return idem.Response{}, err
		}
		charge, err := operation.Call(op, "charge", operation.Once, func(context.Context, string) (string, error) {
			return "", operation.Unknown(errors.New("timeout"))
		})
		return idem.Response{Status: 201, Body: []byte(in + " and " + charge)}, err
	})
	call := func() (idem.Result, error) {
		return pay.Do(t.Context(), d.pool, scope, placed, idem.HashBytes(), "the input", sealed)
	}
	if _, err := call(); !errors.Is(err, operation.ErrParked) {
		t.Fatal(err)
	}
	id := d.operationID()
	if err := operation.Signal(t.Context(), d.pool, id, "early", "the signal", sealed); err != nil {
		t.Fatal(err)
	}
	with := func(keys string, args ...string) output {
		t.Helper()
		return d.withKeys(keys, append([]string{"operation"}, args...)...)
	}
	keys := "2026-11=" + base64.StdEncoding.EncodeToString(secret)
	other := "2026-11=" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("o", 32)))
	with("", "show", id).want(t, 0, "sealed with", "2026-11", "charge", "begun", "parked", "call's key", "sealed (attempt 1 of step charge")
	with(keys, "show", id).want(t, 0, "timeout (attempt 1 of step charge")
	with("", "list").want(t, 0, "attempt 1 of step charge", ": sealed")
	with(keys, "list").want(t, 0, ": the outcome is unknown: timeout")
	with("", "history", id).want(t, 1, `sealed with the key "2026-11"`, "--seal-keys")
	with(keys, "history", id).want(t, 0, `"the input"`, `"begun"`)
	with("", "show", id, "--reveal").want(t, 1, `sealed with the key "2026-11"`, "--seal-keys")
	with(other, "show", id, "--reveal").want(t, 1, "does not open")
	with(keys, "show", id, "--reveal").want(t, 0, "the input", "the value", "the signal")
	with(keys, "show", id, "--reveal", "--json").want(t, 0, `"value_text": "\"the value\""`)
	resolve := []string{"resolve", id, "--reason", "INC-7", "--happened", "--value", `"the charge"`, "--yes"}
	with("", resolve...).want(t, 1, `"2026-11": give it`)
	with(keys, resolve...).want(t, 0, "recorded that")
	res, err := call()
	if err != nil || string(res.Body) != "the input and the charge" {
		t.Fatalf("%s, %v", res.Body, err)
	}
	with(keys, "show", id, "--reveal").want(t, 0, "completed", "the charge")
}

// The answer to a call with an undo is lost. Cancel may repeat the call, to undo it.
func TestOperationCancel_SaysWhatItWillDo(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	charges, refunds, lost := 0, 0, true
	keyed := operation.Keyed(time.Hour).WithMaxAttempts(1)
	pay := operation.Define("pay", func(op *operation.Op, in string) (idem.Response, error) {
		release := operation.UndoTx(func(pgx.Tx, operation.None) error { return nil })
		if err := operation.Exec(op, "reserve", func(pgx.Tx) error { return nil }, release); err != nil {
			return idem.Response{}, err
		}
		if err := operation.Exec(op, "note", func(pgx.Tx) error { return nil }); err != nil {
			return idem.Response{}, err
		}
		_, err := operation.Call(op, "charge", keyed, func(context.Context, string) (string, error) {
			if charges++; lost {
				return "", operation.Unknown(errors.New("timeout"))
			}
			return "ch_1", nil
		}, operation.UndoCall(keyed, func(context.Context, string, string) error { refunds++; return nil }))
		return idem.Response{}, err
	})
	call := func() error {
		_, err := pay.Do(t.Context(), d.pool, scope, placed, idem.HashBytes(), "the input")
		return err
	}
	if err := call(); !errors.Is(err, operation.ErrParked) {
		t.Fatal(err)
	}
	id := d.operationID()
	d.idem("operation", "show", id).want(t, 0, "attempts_exhausted", "attempt 1 of step charge", "timeout")
	d.idem("operation", "cancel", "--all", "--name", "pay", "--dry-run").want(t, 0, "makes the call again under its key")
	d.call(context.Background(), typed("n\n"), "operation", "cancel", id, "--without-calling").want(t, 5, "in doubt: charge", "parks with call_in_doubt", "nothing was changed")
	d.call(context.Background(), typed("y\n"), "operation", "cancel", id).
		want(t, 0, "makes the call again under its key", "in this order: charge, reserve.", "stay, because they have no undo: note.", "canceled operation")
	lost = false
	if err := call(); !errors.Is(err, operation.ErrCanceled) || charges != 2 || refunds != 1 {
		t.Errorf("%v after %d charges and %d refunds", err, charges, refunds)
	}
	d.idem("operation", "show", id).want(t, 0, "undone", "stays", "note")
}
