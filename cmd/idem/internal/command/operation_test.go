package command_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/cmd/idem/internal/command"
	"github.com/idem-go/idem/operation"
	"github.com/idem-go/idem/seal"
)

// IDs of the operations of keepOperations.
const (
	doneID   = "0193c1a0-5a9e-7bbd-8e01-3f1f5f3b2b10"
	parkedID = "0193c1a0-5a9e-7bbd-8e01-3f1f5f3b2b11"
	waitsID  = "0193c1a0-5a9e-7bbd-8e01-3f1f5f3b2b12"
	undoneID = "0193c1a0-5a9e-7bbd-8e01-3f1f5f3b2b13"
)

// keepOperations stores an operation of every kind, all of them two days and some hours old.
func (d *desk) keepOperations() {
	d.t.Helper()
	const begun = `now() - interval '2 days 3 hours 30 min'`
	for _, o := range []struct {
		id, key, name, state, step string
		seq, attempts              int
		undoing                    bool
		wake, ended                any
	}{
		{doneID, placed, "checkout", "completed", "", 0, 0, false, "0", "2.5 s"},
		{parkedID, declined, "checkout", "parked", "charge", 2, 1, false, "0", nil},
		{waitsID, forgotten, "refund", "running", "approval", 2, 0, false, "10 days", nil},
		{undoneID, left, "checkout\x1b[2J", "failed", "", 0, 0, true, "0", "3 s"},
	} {
		d.exec(`INSERT INTO idem.operations (id, scope, key, hash, name, ttl, created_at, input, epoch, state, undoing, step, seq, kind, since, wake_at, tries, attempts, ended_at)
			VALUES ($1, $2, $3, '', $4, 86400000000, `+begun+`, '{"sku":"teapot"}', 1, $5, $6, $7, $8, CASE $7 WHEN 'charge' THEN 'call' WHEN 'approval' THEN 'await' ELSE '' END, `+begun+` + interval '120 ms', `+begun+` + $9::interval, 0, $10, `+begun+` + $11::interval)`,
			o.id, scope, o.key, o.name, o.state, o.undoing, o.step, o.seq, o.wake, o.attempts, o.ended)
	}
	d.exec(`UPDATE idem.operations SET policy = 'once', undos = 1, reason = 'call_in_doubt', reason_step = step, reason_text = 'step "charge" may have happened',
		error_step = step, error_attempt = 3, error_text = convert_to('no answer from the bank' || chr(27), 'UTF8'), error_at = created_at + interval '1 s' WHERE id = $1`, parkedID)
	for _, s := range []struct {
		id            string
		seq           int
		after         string
		kind, name    string
		outcome       string
		value, dueDay any
		undos         any
	}{
		{doneID, 1, "120 ms", "tx", "reserve", "done", `{"order":17}`, nil, 1},
		{doneID, 2, "2.5 s", "call", "charge", "done", `{"charge":"ch_secret"}`, nil, 1},
		{doneID, 3, "2.5 s", "tx", "confirm", "done", `null`, nil, nil},
		{parkedID, 1, "120 ms", "tx", "reserve", "done", `{"order":18}`, nil, 1},
		{waitsID, 1, "120 ms", "tx", "ask", "done", `null`, nil, nil},
		{waitsID, 2, "120 ms", "await", "approval", "waiting", nil, "10 days", nil},
		{undoneID, 1, "120 ms", "tx", "reserve\x1b[31m", "done", `{"order":19}`, nil, 1},
		{undoneID, 2, "1 s", "tx", "note", "done", `null`, nil, nil},
		{undoneID, 3, "1.2 s", "call", "charge", "failed", `{"text":"card declined"}`, nil, 1},
		{undoneID, 4, "3 s", "end", "error", "failed", `{"text":"card declined"}`, nil, nil},
		{undoneID, 5, "3 s", "undo", "reserve\x1b[31m", "done", nil, nil, nil},
	} {
		d.exec(`INSERT INTO idem.steps (operation_id, seq, kind, name, due_at, recorded_at, outcome, value, undos)
			SELECT id, $2, $3, $4, created_at + $5::interval, created_at + $6::interval, $7, convert_to($8, 'UTF8'), $9 FROM idem.operations WHERE id = $1`,
			s.id, s.seq, s.kind, s.name, s.dueDay, s.after, s.outcome, s.value, s.undos)
	}
	d.exec(`INSERT INTO idem.signals SELECT id, 'approval', created_at + interval '1 h', '"yes"', false FROM idem.operations WHERE id = $1`, waitsID)
}

func TestOperationsAreShownAsTheGoldenFilesHaveIt(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"operation-list":            {"list"},
		"operation-list-more":       {"list", "--limit", "2", "--full"},
		"operation-list-before":     {"list", "--before", parkedID},
		"operation-list-parked":     {"list", "--state", "parked", "--name", "checkout", "--scope", "tenant-1/", "--older", "1d"},
		"operation-list-none":       {"list", "--scope", "tenant-2"},
		"operation-show":            {"show", doneID},
		"operation-show-reveal":     {"show", doneID, "--reveal", "--full"},
		"operation-show-parked":     {"show", parkedID},
		"operation-show-full":       {"show", parkedID, "--full"},
		"operation-show-waits":      {"show", waitsID},
		"operation-show-undone":     {"show", undoneID, "--reveal"},
		"operation-show-none":       {"show", leftID},
		"operation-history":         {"history", undoneID},
		"operation-history-doubt":   {"history", parkedID},
		"operation-history-none":    {"history", leftID},
		"operation-retry":           {"retry", parkedID, "--yes"},
		"operation-retry-unasked":   {"retry", parkedID},
		"operation-retry-waits":     {"retry", waitsID, "--yes"},
		"operation-retry-all":       {"retry", "--all", "--name", "checkout", "--step", "charge", "--yes"},
		"operation-retry-all-bare":  {"retry", "--all", "--yes"},
		"operation-retry-both":      {"retry", parkedID, "--name", "checkout"},
		"operation-retry-dry-run":   {"retry", "--all", "--older", "1h", "--dry-run"},
		"operation-cancel-all":      {"cancel", "--all", "--state", "running", "--name", "refund", "--yes"},
		"operation-cancel-all-none": {"cancel", "--all", "--name", "refund", "--yes"},
		"operation-cancel-unasked":  {"cancel", "--all", "--scope", "tenant-1/"},
		"operation-resolve":         {"resolve", parkedID, "--reason", "INC-7", "--happened", "--value", `{"charge":"ch_1"}`, "--yes"},
		"operation-resolve-unasked": {"resolve", parkedID, "--reason", "INC-7", "--not-happened"},
		"operation-cancel":          {"cancel", waitsID, "--yes"},
		"operation-cancel-doubt":    {"cancel", parkedID, "--without-calling", "--without-code", "--yes"},
		"operation-cancel-ended":    {"cancel", doneID, "--yes"},
	} {
		for kind, further := range map[string][]string{"txt": nil, "json": {"--json"}} {
			t.Run(name+"."+kind, func(t *testing.T) {
				t.Parallel()
				d := newDesk(t)
				d.keepOperations()
				got := d.idem(append(append([]string{"operation"}, args...), further...)...)
				compareGolden(t, name+"."+kind, fmt.Sprintf("%s%sexit %d\n", got.stdout, got.stderr, got.code))
			})
		}
	}
}

func TestShowOfAParentNamesItsChildAndThatOfAChildItsParent(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
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

func TestKeysInputsAndValuesOfOperationsAreNotShownUnlessAskedFor(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.keepOperations()
	for _, args := range [][]string{{"list"}, {"show", doneID}, {"show", waitsID}, {"show", undoneID}, {"retry", parkedID}, {"cancel", parkedID}} {
		for _, further := range [][]string{nil, {"--json"}} {
			got := d.idem(append(append([]string{"operation"}, args...), further...)...)
			for _, secret := range []string{placed, declined, forgotten, left, "teapot", "ch_secret", "order\":", "declined", `"yes"`, "\x1b"} {
				if strings.Contains(got.stdout+got.stderr, secret) {
					t.Errorf("%q shows %q:\n%s", args, secret, got.stdout)
				}
			}
		}
	}
}

func TestOperationsAreLeftAloneUntilSomebodyAgrees(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.keepOperations()
	for _, args := range [][]string{{"retry", parkedID}, {"cancel", waitsID}, {"resolve", parkedID, "--reason", "INC-7", "--happened", "--value", "null"}} {
		args = append([]string{"operation"}, args...)
		for answer, code := range map[string]int{"": 5, "n\n": 5, "yes please\n": 5} {
			d.call(context.Background(), typed(answer), args...).want(t, code, "nothing was changed")
		}
		d.idem(args...).want(t, 5, "--yes")
	}
	var n int
	err := d.pool.QueryRow(t.Context(), "SELECT count(*) FROM idem.operations WHERE epoch = 1 AND NOT canceled").Scan(&n)
	if err != nil || n != 4 {
		t.Fatalf("%d of 4 are as they were, %v", n, err)
	}
	d.call(context.Background(), typed("y\n"), "operation", "retry", parkedID).want(t, 0, "Go on?", "it is retried")
	d.idem("operation", "retry", parkedID, "--yes").want(t, 5, "is not parked")
}

func TestWhatCannotBeSaidOfAnOperationIsRefused(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.keepOperations()
	d.idem("operation", "show", "17").want(t, 2, "no operation id")
	d.idem("operation", "list", "--before", "17").want(t, 2, "no operation id")
	d.idem("operation", "list", "--limit", "0").want(t, 2, "--limit")
	d.idem("operation", "resolve", parkedID).want(t, 2, "--happened, --not-happened or --refused")
	for _, reason := range []string{"", " "} {
		d.idem("operation", "resolve", parkedID, "--not-happened", "--yes", "--reason", reason).want(t, 2, "--reason")
	}
	d.idem("operation", "resolve", parkedID, "--reason", "INC-7", "--not-happened", "--value", "1").want(t, 2, "no --value")
	d.idem("operation", "resolve", parkedID, "--reason", "INC-7", "--refused", "no", "--value", "1").want(t, 2, "no --value")
	d.idem("operation", "resolve", parkedID, "--reason", "INC-7", "--refused", "no", "--happened").want(t, 2, "--refused")
	d.idem("operation", "resolve", parkedID, "--reason", "INC-7", "--happened", "--value", "{").want(t, 2, "not JSON")
	d.idem("operation", "resolve", parkedID, "--reason", "INC-7", "--happened", "--not-happened").want(t, 2, "--happened")
	d.idem("operation", "resolve", parkedID, "--reason", "INC-7", "--happened", "--yes").want(t, 2, "--value null")
	d.idem("operation", "retry", placedID, "--yes").want(t, 4, "no operation")
	d.exec("UPDATE idem.operations SET seq = 0, kind = '' WHERE id = $1", parkedID)
	d.idem("operation", "resolve", parkedID, "--reason", "INC-7", "--happened", "--yes").want(t, 5, "retry and cancel")
}

func TestOperatorSaysThatACallWasRefused(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	declined := errors.New("the card is declined")
	pay := operation.Define("pay", func(op *operation.Op, in string) (idem.Response, error) {
		_, err := operation.Call(op, "charge", operation.Once, func(context.Context, string) (string, error) {
			return "", operation.Unknown(errors.New("timeout"))
		})
		if operation.IsFinal(err) && errors.Is(err, declined) {
			return idem.Response{Status: 402}, nil
		}
		return idem.Response{}, err
	})
	call := func() (idem.Result, error) {
		return pay.Do(t.Context(), d.pool, scope, placed, idem.HashBytes(), "the input")
	}
	if _, err := call(); !errors.Is(err, operation.ErrParked) {
		t.Fatal(err)
	}
	var id string
	if err := d.pool.QueryRow(t.Context(), "SELECT id::text FROM idem.operations").Scan(&id); err != nil {
		t.Fatal(err)
	}
	d.idem("operation", "resolve", id, "--reason", "INC-7", "--refused", declined.Error(), "--yes").want(t, 0, "it is resumed")
	if res, err := call(); err != nil || res.Status != 402 {
		t.Error(res, err)
	}
}

func TestOperatorResolvesCallsThatWereMadeAtTheSameTimeByTheirNames(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
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
	var id string
	if err := d.pool.QueryRow(t.Context(), "SELECT id::text FROM idem.operations").Scan(&id); err != nil {
		t.Fatal(err)
	}
	air, room := operation.CallKey(id, "call", "air"), operation.CallKey(id, "call", "room")
	d.idem("operation", "show", id, "--full").want(t, 0, air, room, "of step room", "begun", "call_in_doubt")
	d.idem("operation", "resolve", id, "--reason", "INC-7", "--not-happened", "--step", "sea", "--yes").want(t, 5, "")
	d.idem("operation", "resolve", id, "--reason", "INC-7", "--happened", "--value", `"a room"`, "--step", "room", "--yes").want(t, 0, "it is resumed")
	if _, err := call(); !errors.Is(err, operation.ErrParked) {
		t.Fatal(err)
	}
	d.idem("operation", "resolve", id, "--reason", "INC-7", "--happened", "--value", `"a flight"`, "--yes").want(t, 0, "it is resumed")
	if res, err := call(); err != nil || string(res.Body) != "a flight and a room" {
		t.Errorf("%s, %v", res.Body, err)
	}
}

// Another person may retry the operation while the user decides.
func TestOnlyTheCallThatWasLookedAtIsResolved(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.keepOperations()
	change := func(w *command.World) {
		typed("")(w)
		w.Stdin = readerFunc(func(p []byte) (int, error) {
			d.exec("UPDATE idem.operations SET epoch = epoch + 1")
			return copy(p, "y\n"), nil
		})
	}
	d.call(context.Background(), change, "operation", "resolve", parkedID, "--reason", "INC-7", "--not-happened").want(t, 5, "has changed since")
}

// A real operation parks, and its operator resolves it. All its values are sealed.
func TestOperatorShowsAndResolvesASealedOperation(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
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
	var id string
	if err := d.pool.QueryRow(t.Context(), "SELECT id::text FROM idem.operations").Scan(&id); err != nil {
		t.Fatal(err)
	}
	if err := operation.Signal(t.Context(), d.pool, id, "early", "the signal", sealed); err != nil {
		t.Fatal(err)
	}
	with := func(keys string, args ...string) said {
		t.Helper()
		return d.call(context.Background(), func(w *command.World) {
			w.Getenv = func(name string) string {
				return map[string]string{"DATABASE_URL": d.dsn, "IDEM_SEAL_KEYS": keys}[name]
			}
		}, append([]string{"operation"}, args...)...)
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
	with("", resolve...).want(t, 1, `"2026-11", which is needed`)
	with(keys, resolve...).want(t, 0, "it is resumed")
	res, err := call()
	if err != nil || string(res.Body) != "the input and the charge" {
		t.Fatalf("%s, %v", res.Body, err)
	}
	with(keys, "show", id, "--reveal").want(t, 0, "completed", "the charge")
}

// The answer of a call is lost, and the call has an undo. Cancel may repeat the call in order to
// undo it.
func TestOperationCancel_SaysWhatItWillDo(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
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
	var id string
	if err := d.pool.QueryRow(t.Context(), "SELECT id::text FROM idem.operations").Scan(&id); err != nil {
		t.Fatal(err)
	}
	d.idem("operation", "show", id).want(t, 0, "attempts_exhausted", "attempt 1 of step charge", "timeout")
	d.idem("operation", "cancel", "--all", "--name", "pay", "--dry-run").want(t, 0, "1 make a call in doubt again")
	d.call(context.Background(), typed("n\n"), "operation", "cancel", id, "--without-calling").want(t, 5, "in doubt: charge", "parks with call_in_doubt", "nothing was changed")
	d.call(context.Background(), typed("y\n"), "operation", "cancel", id).
		want(t, 0, "makes the call again under its key", "in this order: charge, reserve.", "stay, because they have no undo: note.", "it is canceled")
	lost = false
	if err := call(); !errors.Is(err, operation.ErrCanceled) || charges != 2 || refunds != 1 {
		t.Errorf("%v after %d charges and %d refunds", err, charges, refunds)
	}
	d.idem("operation", "show", id).want(t, 0, "undone", "stays", "note")
}
