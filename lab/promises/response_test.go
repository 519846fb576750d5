package promises_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/pgtest"
)

// answer returns a fn that only returns resp.
func answer(resp idem.Response) func(pgx.Tx) (idem.Response, error) {
	return func(pgx.Tx) (idem.Response, error) { return resp, nil }
}

func allBytes() []byte {
	body := make([]byte, 256)
	for i := range body {
		body[i] = byte(i)
	}
	return body
}

type header = map[string][]string

// responses are stored unchanged, except that an empty header or body becomes nil. That holds for
// the first answer and for every replay. want is only set if it differs.
var responses = map[string]struct {
	resp idem.Response
	want *idem.Response
}{
	"zero":              {resp: idem.Response{}},
	"status smallest":   {resp: idem.Response{Status: math.MinInt32}},
	"status largest":    {resp: idem.Response{Status: math.MaxInt32}},
	"body empty":        {resp: idem.Response{Body: []byte{}}, want: &idem.Response{}},
	"body binary":       {resp: idem.Response{Body: allBytes()}},
	"body hex prefix":   {resp: idem.Response{Body: []byte(`\x414243`)}},
	"body backslashes":  {resp: idem.Response{Body: []byte(`\\\000\'''`)}},
	"body JSON":         {resp: idem.Response{Body: []byte("{\"b\":1, \"a\" :1.0,\"a\":9007199254740993}\n")}},
	"body large":        {resp: idem.Response{Body: bytes.Repeat(allBytes(), 64)}},
	"header empty":      {resp: idem.Response{Header: header{}}, want: &idem.Response{}},
	"header values":     {resp: idem.Response{Header: header{"Set-Cookie": {"a=1, b", "a=2; Expires=Sat, 21 Nov 2026", ""}, "ETag": {`W/"x"`}}}},
	"header order":      {resp: idem.Response{Header: header{"V": {"c", "a", "b", "a"}}}},
	"header nil values": {resp: idem.Response{Header: header{"Nil": nil, "A": {"b"}}}, want: &idem.Response{Header: header{"Nil": {}, "A": {"b"}}}},
	"header empty name": {resp: idem.Response{Header: header{"": {"nameless"}}}},
	"header case":       {resp: idem.Response{Header: header{"x": {"1"}, "X": {"2"}, "é": {"3"}, "e\u0301": {"4"}}}},
	"header unicode":    {resp: idem.Response{Header: header{"X-Ü😀": {"\u2028\u2029\ufeff\ufffd\U0010ffff", "а"}}}},
	"header markup":     {resp: idem.Response{Header: header{"<&>": {`<a href="x">&amp;</a>`, `\u003c`, `\`, `"`, "'"}}}},
	"header controls":   {resp: idem.Response{Header: header{"\x01\r\n": {"\x01\x1f\x7f\u0080\t\n"}}}},
	"header hostile":    {resp: idem.Response{Header: header{hostileHeader: {hostileHeader}}}},
}

// hostileHeader is hostile without the bytes that a header must not contain.
var hostileHeader = strings.ReplaceAll(hostile, "\x00", "")

// Everybody gets the same response: the caller that executes, a replay from the database, and a
// duplicate that waited in memory. It does not matter how the response was recorded, sealed or
// plain.
func TestResponse_IsReplayedByteForByte(t *testing.T) {
	t.Parallel()
	inFewModes(t, func(t *testing.T, l *ledger, _ pgx.QueryExecMode) { replaysByteForByte(t, l) })
}

func TestSealedResponse_IsReplayedByteForByte(t *testing.T) {
	t.Parallel()
	inFewModes(t, func(t *testing.T, l *ledger, _ pgx.QueryExecMode) {
		replaysByteForByte(t, l, sealed("a"))
		l.wantCount("records that are not sealed as a whole", 0,
			"select count(*) from idem.records where sealed_by is distinct from 'a' or header is not null or body is null")
	})
}

func replaysByteForByte(t *testing.T, l *ledger, opts ...idem.Option) {
	elsewhere := l.process()
	for name, test := range responses {
		want := test.resp
		if test.want != nil {
			want = *test.want
		}
		for how, end := range map[string]error{" completed": nil, " rejected": idem.Reject(test.resp)} {
			check := func(way string, got idem.Result, err error) {
				t.Helper()
				if diff := cmp.Diff(want, got.Response); err != nil || diff != "" || got.Rejected != (end != nil) {
					t.Errorf("%s%s: %s: %v (-want +got)\n%.2000s", name, how, way, err, diff)
				}
			}
			fn := func(pgx.Tx) (idem.Response, error) { return test.resp, end }
			first, err := idemDo(ctx, l.pool, scope, name+how, hashA, fn, opts...)
			check("first", first, err)
			again, err := idemDo(ctx, l.pool, scope, name+how, hashA, neverCalled(t), opts...)
			check("replay", again, err)
			again, err = idemDo(ctx, elsewhere, scope, name+how, hashA, neverCalled(t), append(opts, idem.WithReplayLikely())...)
			check("likely replay elsewhere", again, err)
			err = pgx.BeginFunc(ctx, l.pool, func(tx pgx.Tx) error {
				joined, err := idem.DoTx(ctx, tx, scope, name+how+" joined", hashA, fn, opts...)
				check("joined", joined, err)
				joined, err = idem.DoTx(ctx, tx, scope, name+how+" joined", hashA, neverCalled(t), opts...)
				check("joined, replay", joined, err)
				return err
			})
			wantIs(t, err, nil)
		}
	}
}

// A duplicate that waited in memory gets the same response as from the database. A caller that
// changes its response does not change that of another caller.
func TestResponse_CannotBeChangedByAnotherCaller(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	own := idem.Response{Status: 200, Header: header{"A": {"1", "2"}, "Nil": nil}, Body: []byte("response")}
	want := idem.Response{Status: 200, Header: header{"A": {"1", "2"}, "Nil": {}}, Body: []byte("response")}
	spoil := func(r idem.Result) {
		for i := range r.Body {
			r.Body[i] = 'x'
		}
		_ = append(r.Body, "more"...)
		r.Header["A"][0] = "changed"
		r.Header["B"] = []string{"added"}
		delete(r.Header, "A")
	}
	leader, gate, w := make(chan struct{}), make(chan struct{}), newWatch()
	calls := storm(16, func(int) {
		res, err := idemDo(ctx, l.pool, scope, "k", hashA, func(pgx.Tx) (idem.Response, error) {
			close(leader)
			<-gate
			return own, nil
		}, idem.WithObserver(w), idem.WithWait(limit))
		if diff := cmp.Diff(want, res.Response); err != nil || diff != "" {
			t.Errorf("%v\n%s", err, diff)
			return
		}
		spoil(res)
	})
	await(t, "fn to begin", leader)
	w.await(t, "waiting", 15)
	close(gate)
	calls()
	if own.Header["Nil"] != nil {
		t.Error("the response of fn itself was changed")
	}
	for range 2 {
		res, err := idemDo(ctx, l.pool, scope, "k", hashA, neverCalled(t))
		if diff := cmp.Diff(want, res.Response); err != nil || diff != "" {
			t.Errorf("%v\n%s", err, diff)
		}
		spoil(res)
	}
}

func TestResponse_ThatCannotBeKeptExactlyIsRefused(t *testing.T) {
	t.Parallel()
	l := newLedger(t, maxConns(1))
	for name, resp := range map[string]idem.Response{
		"status above":           {Status: math.MaxInt32 + 1},
		"status below":           {Status: math.MinInt32 - 1},
		"value lone surrogate":   {Header: header{"X": {"ok", "\xed\xa0\x80"}}},
		"value NUL":              {Header: header{"X": {"a\x00b"}}},
		"name NUL":               {Header: header{"\x00": nil}},
		"two names made one":     {Header: header{"\xff": {"1"}, "\xfe": {"2"}}},
		"value Latin-1":          {Header: header{"Content-Disposition": {"filename=caf\xe9"}}},
		"name with a late fault": {Header: header{strings.Repeat("x", 1000) + "\x00": {"v"}}},
	} {
		for how, end := range map[string]error{"": nil, " rejected": idem.Reject(resp)} {
			l.wantRefused(name+how, idem.ErrInvalidResponse, l.ending(name+how, resp, end))
		}
	}
}

func TestResponse_AboveTheLimitIsRefused(t *testing.T) {
	t.Parallel()
	l := newLedger(t, maxConns(1))
	inHeader := len(`{"A":["<"]}`) + len(`\u003c`) - len("<") // the stored form
	for limit, opts := range map[int][]idem.Option{
		1 << 20: nil, // that is the default
		100:     {idem.WithMaxResponse(100)},
		101:     {idem.WithMaxResponse(101), sealed("a")}, // the limit is that of the plain response
	} {
		for _, h := range []header{nil, {"A": {"<"}}} {
			for over := -1; over <= 1; over++ {
				size, key := limit+over, fmt.Sprint(limit, over, len(h))
				resp := idem.Response{Header: h, Body: bytes.Repeat([]byte{0xff}, size-inHeader*len(h))}
				res, err := idemDo(ctx, l.pool, scope, key, hashA, l.ending(key, resp, nil), opts...)
				if over <= 0 {
					if err != nil || !bytes.Equal(res.Body, resp.Body) {
						t.Errorf("%d bytes of %d: %v", size, limit, err)
					}
					// A lower limit does not make a stored response unreadable.
					again, err := idemDo(ctx, l.pool, scope, key, hashA, neverCalled(t), append(opts, idem.WithMaxResponse(0))...)
					if err != nil || !bytes.Equal(again.Body, resp.Body) {
						t.Errorf("%d bytes of %d: replay: %v", size, limit, err)
					}
					continue
				}
				var tooLarge *idem.ResponseTooLargeError
				if !errors.As(err, &tooLarge) || !errors.Is(err, idem.ErrResponseTooLarge) || idem.Retryable(err) || tooLarge.Size != size || tooLarge.Limit != limit {
					t.Errorf("%d bytes of %d: err = %v", size, limit, err)
				}
				_, err = idemDo(ctx, l.pool, scope, key, hashA, l.ending(key, ok, idem.Reject(resp)), opts...)
				wantIs(t, err, idem.ErrResponseTooLarge, "rejected")
				l.wantNone(key)
				l.wantFree(key)
			}
		}
	}
}

func TestResponse_HeaderIsStoredAsAnObjectOfArrays(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	noError(t, errOf(idemDo(ctx, l.pool, scope, "k", hashA, answer(idem.Response{Header: header{"A": {"1", "2"}, "B": nil, "C": {}}}))))
	l.wantCount("headers in this form", 1, `select count(*) from idem.records where header = '{"A": ["1", "2"], "B": [], "C": []}'`)
}

// The record was changed by hand. The error must not contain the stored data.
func TestResponse_UnreadableHeaderIsAnErrorWithoutIt(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.charged(ctx, "k")
	for _, header := range []string{`{"Card": [4929123456789012]}`, `4929123456789012`, `[4929123456789012]`} {
		execute(t, l.pool, "update idem.records set header = $1", header)
		for _, opts := range [][]idem.Option{nil, {idem.WithReplayLikely()}, {idem.WithWait(0)}} {
			_, err := idemDo(ctx, l.pool, scope, "k", hashA, neverCalled(t), opts...)
			if !errors.Is(err, idem.ErrUnreadable) || strings.Contains(err.Error(), "4929") {
				t.Errorf("%s: %v", header, err)
			}
		}
	}
	l.expire("k")
	l.charged(ctx, "k") // an expired record does not matter, whatever it contains
}

func TestReplay_WritesNothing(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.charged(ctx, "k")
	row := func() (xmin, xmax string) {
		t.Helper()
		noError(t, l.pool.QueryRow(ctx, "select xmin::text, xmax::text from idem.records").Scan(&xmin, &xmax))
		return xmin, xmax // xmax would be the id of a transaction that has locked the row
	}
	xmin, xmax := row()
	replayed(t)(idemDo(ctx, l.pool, scope, "k", hashA, neverCalled(t)))
	if min, max := row(); min != xmin || max != xmax {
		t.Errorf("the row was touched: xmin %s, xmax %s; had %s, %s", min, max, xmin, xmax)
	}
	// Run the same statements in a transaction of the test. The test can then query whether that
	// transaction has an id and which locks it holds.
	tx := l.begin(ctx)
	replayed(t)(idem.DoTx(ctx, tx, scope, "k", hashA, neverCalled(t)))
	var assigned *string
	var advisory int
	err := tx.QueryRow(ctx, `select pg_current_xact_id_if_assigned()::text,
		(select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid())`).Scan(&assigned, &advisory)
	if err != nil || assigned != nil || advisory != 0 {
		t.Errorf("replay has transaction id %v and %d advisory locks, %v", assigned, advisory, err)
	}
}

func TestTTL_ExpiredKeyIsNewForExactlyOneCaller(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	pools := []*pgxpool.Pool{l.pool, l.process()}
	for round := range 4 {
		key := fmt.Sprint("k", round)
		old := l.charged(ctx, key)
		l.expire(key)
		opts := []idem.Option{idem.WithWait(limit)}
		if round%2 == 1 { // nothing but the primary key keeps the callers apart
			opts = append(opts, idem.WithRetries(100), idem.WithTxOptions(pgx.TxOptions{IsoLevel: pgx.Serializable}), locks["no lock"][0])
		}
		if round > 1 {
			opts = append(opts, idem.WithReplayLikely())
		}
		var executed atomic.Int64
		storm(16, func(i int) {
			res, err := idemDo(ctx, pools[i%2], scope, key, hashB, l.charge(key), opts...)
			wantIs(t, err, nil)
			if !res.Replayed {
				executed.Add(1)
			}
			if res.ExecutionID == old.ExecutionID || string(res.Body) == string(old.Body) {
				t.Errorf("%s: the expired response was replayed", key)
			}
		})()
		if executed.Load() != 1 {
			t.Errorf("%s: %d executed", key, executed.Load())
		}
		l.wantStored(key, 2, 1)
	}
}

type order struct {
	ID      int64          `json:"id"`
	Total   json.Number    `json:"total"`
	At      time.Time      `json:"at"`
	Extra   map[string]any `json:"extra,omitempty"`
	secret  string         // not part of the JSON
	Ignored string         `json:"-"`
}

// checkJSON fails the test unless the first caller and its duplicates get the value want.
func checkJSON[T any](t *testing.T, l *ledger, key string, value, want T, body string) {
	t.Helper()
	for i := range 2 {
		got, res, err := idem.DoJSON(context.Background(), l.pool, scope, key, hashA, func(tx pgx.Tx) (T, error) {
			_, err := l.charge(key)(tx)
			return value, err
		})
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(order{})); err != nil || diff != "" {
			t.Errorf("%s, call %d: %v\n%s", key, i, err, diff)
		}
		if res.Status != 200 || string(res.Body) != body || res.Replayed != (i > 0) {
			t.Errorf("%s, call %d: %+v with body %s, want %s", key, i, res, res.Body, body)
		}
	}
	l.wantOnce(key)
}

func TestDoJSON_FirstCallerAndDuplicatesGetTheSameValue(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	at := time.Date(2026, 11, 21, 1, 2, 3, 456789123, time.FixedZone("", 3600))
	full := order{ID: 9007199254740993, Total: "19.90", At: at, secret: "s", Ignored: "i", Extra: map[string]any{"n": 1}}
	stored := full
	stored.secret, stored.Ignored = "", ""
	stored.Extra = map[string]any{"n": float64(1)} // decoded from JSON for the first caller too
	checkJSON(t, l, "struct", full, stored, `{"id":9007199254740993,"total":19.90,"at":"2026-11-21T01:02:03.456789123+01:00","extra":{"n":1}}`)
	checkJSON[*order](t, l, "nil pointer", nil, nil, "null")
	checkJSON(t, l, "empty slice", []int{}, []int{}, "[]")
	checkJSON[[]int](t, l, "nil slice", nil, nil, "null")
	checkJSON(t, l, "map", map[string]int{"b": 1, "a": 2}, map[string]int{"a": 2, "b": 1}, `{"a":2,"b":1}`)
	checkJSON(t, l, "string", "\"\\ é😀<", "\"\\ é😀<", `"\"\\ é😀\u003c"`)
	checkJSON[any](t, l, "any", 1, float64(1), "1")
	checkJSON(t, l, "raw", json.RawMessage(`{"a": 1}`), json.RawMessage(`{"a":1}`), `{"a":1}`)
}

func TestDoJSON_RejectionAndErrorLeaveTheValueZero(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	for i := range 2 {
		got, res, err := idem.DoJSON(ctx, l.pool, scope, "rejected", hashA, func(tx pgx.Tx) (int, error) {
			l.charge("rejected")(tx)
			return 7, idem.Reject(idem.Response{Status: 402, Body: []byte("not JSON")})
		})
		if err != nil || got != 0 || !res.Rejected || res.Replayed != (i > 0) || res.Status != 402 || string(res.Body) != "not JSON" {
			t.Errorf("%d, %+v, %v", got, res, err)
		}
	}
	l.wantStored("rejected", 0, 1)
	got, res, err := idem.DoJSON(ctx, l.pool, scope, "failed", hashA, func(tx pgx.Tx) (int, error) { l.charge("failed")(tx); return 7, errBusiness })
	if diff := cmp.Diff(idem.Result{}, res); err != errBusiness || got != 0 || diff != "" {
		t.Errorf("%d, %v\n%s", got, err, diff)
	}
	l.wantNone("failed")
}

// encodesOnly can be encoded to JSON and not decoded from it.
type encodesOnly struct{}

func (encodesOnly) MarshalJSON() ([]byte, error)  { return []byte(`{"a":1}`), nil }
func (*encodesOnly) UnmarshalJSON(b []byte) error { return errors.New("cannot be decoded") }

// A value that no caller could get back is refused before the effect is committed.
func TestDoJSON_RefusesAValueThatCannotBeReadBack(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	for name, value := range map[string]any{"channel": make(chan int), "NaN": math.NaN()} {
		refuseJSON(t, l, name, value)
	}
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

func TestDoJSON_StoredResponseOfAnotherTypeIsAnError(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	for key, body := range map[string]string{"empty": "", "text": "ok", "two values": "1 2", "another type": `{"id":"seven","total":1}`} {
		noError(t, errOf(idemDo(ctx, l.pool, scope, key, hashA, answer(idem.Response{Status: 201, Body: []byte(body)}))))
		got, res, err := idem.DoJSON(ctx, l.pool, scope, key, hashA, func(pgx.Tx) (order, error) { t.Error("fn was called"); return order{}, nil })
		if err == nil || idem.Retryable(err) || res.Status != 201 || string(res.Body) != body || !res.Replayed {
			t.Errorf("%s: %+v, %v", key, res, err)
		}
		if diff := cmp.Diff(order{}, got, cmp.AllowUnexported(order{})); diff != "" {
			t.Errorf("half of a value was returned: %s", diff)
		}
	}
}

// While fn runs longer than its own TTL, no call may take the key over. A record that is not
// committed cannot expire. A follower that began before the record expired shares it.
func TestTTL_FnSlowerThanItsTTLKeepsTheKey(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	elsewhere := l.process()
	l.charged(ctx, "k")
	l.expire("k") // the claim then takes over an expired record that others can see
	held, watch := l.hold(t, "k", hashA, nil, idem.WithTTL(time.Millisecond)), newWatch()
	follower := calling(ctx, l.pool, "k", hashA, neverCalled(t), idem.WithObserver(watch), idem.WithWait(limit))
	watch.await(t, string(idem.EventWaiting), 1)
	for range 5 {
		wantIs(t, errOf(idemDo(ctx, elsewhere, scope, "k", hashA, l.charge("k"), idem.WithWait(0))), idem.ErrInProgress)
	}
	held.release()
	wantIs(t, errors.Join(held.wait(t), await(t, "the follower", follower)), nil)
	l.wantStored("k", 2, 1)
}

// Every field of a record that was taken over belongs to the new execution.
func TestTTL_TakenOverRecordKeepsNothingOfTheExpiredOne(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	old, err := idemDo(ctx, l.pool, scope, "k", hashA, answer(idem.Response{Status: 7, Header: header{"A": {"b"}}, Body: []byte("old")}), sealed("a"))
	noError(t, err)
	l.expire("k")
	if _, err := idemDo(ctx, l.pool, scope, "k", hashB, l.failing("k", errBusiness)); err != errBusiness ||
		l.count("select count(*) from idem.records where execution_id = $1", old.ExecutionID) != 1 {
		t.Errorf("a failed execution touched the expired record: %v", err)
	}
	res, err := idemDo(ctx, l.pool, scope, "k", hashB, func(tx pgx.Tx) (idem.Response, error) {
		var clean bool
		err := tx.QueryRow(ctx, "select sealed_by is null and body is null and header is null from idem.records").Scan(&clean)
		if err != nil || !clean {
			t.Errorf("after the takeover clean is %t, %v", clean, err)
		}
		return idem.Response{}, err
	})
	if err != nil || res.ExecutionID == old.ExecutionID || !res.CreatedAt.After(old.CreatedAt) {
		t.Errorf("%+v, %v", res, err)
	}
	wantReplay(t, "taken over", res)(idemDo(ctx, l.pool, scope, "k", hashB, neverCalled(t)))
	wantIs(t, errOf(idemDo(ctx, l.pool, scope, "k", hashA, neverCalled(t))), idem.ErrMismatch, "the expired hash still counts")
}

// A leader may have read the record long before its answer arrives. For a call that began in the
// meantime, the record has expired.
func TestTTL_FollowerDoesNotShareARecordExpiredBeforeItsCall(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	l, proxy := ledgerOn(t, pgtest.Open(t, dsn)), pgtest.Proxy(t, dsn)
	slow := ledgerOn(t, pgtest.Open(t, proxy.DSN()))
	for life := 500 * time.Millisecond; ; life *= 2 { // until the leader is fast enough to read the record before it expires
		key := life.String()
		noError(t, errOf(idemDo(ctx, l.pool, scope, key, hashA, l.charge(key), idem.WithTTL(life))))
		trap := proxy.Arm(pgproxy.AfterAnswer(pgproxy.Contains("-- name: Load")), pgproxy.Freeze)
		type answer struct {
			idem.Result
			err error
		}
		leader, follower := make(chan answer, 1), make(chan answer, 1)
		do := func(to chan answer, opts ...idem.Option) {
			res, err := idemDo(ctx, slow.pool, scope, key, hashA, slow.charge(key), opts...)
			to <- answer{res, err}
		}
		go do(leader, idem.WithTTL(time.Hour))
		event := await(t, "the answer to be held", trap.Fired())
		awaitTrue(t, l.pool, "select expires_at < clock_timestamp() from idem.records where key = '"+key+"'")
		watch := newWatch()
		go do(follower, idem.WithTTL(time.Hour), idem.WithObserver(watch), idem.WithWait(limit))
		watch.await(t, string(idem.EventWaiting), 1)
		event.Conn.Resume()
		first, second := await(t, "the leader", leader), await(t, "the follower", follower)
		if !first.Replayed {
			continue
		}
		if second.err != nil || second.Replayed {
			t.Errorf("the record had expired before the call began: %+v, %v", second.Result, second.err)
		}
		return
	}
}

// A call reads the outcome of an unanswered COMMIT from the record. If the record has expired and
// was taken over in the meantime, the call must report neither that nothing was committed nor that
// it may be retried.
func TestDo_CommitWithATakenOverRecordIsUnknown(t *testing.T) {
	t.Parallel()
	p := newProxied(t)
	trap := p.proxy.Arm(pgproxy.AfterAnswer(pgproxy.IsCommit, "COMMIT"), pgproxy.BlackHole)
	done := calling(t.Context(), p.through, "k", hashA, p.charge("k"), idem.WithTTL(50*time.Millisecond))
	event := await(t, "the trap", trap.Fired())
	for replayed := true; replayed; {
		res, err := idemDo(t.Context(), p.pool, scope, "k", hashA, p.charge("k"))
		noError(t, err)
		replayed = res.Replayed
	}
	event.Conn.Cut(pgproxy.Reset)
	wantIs(t, await(t, "the call", done), idem.ErrOutcomeUnknown)
	p.wantStored("k", 2, 1)
}

// expireAll makes every record expired.
func (l *ledger) expireAll() {
	l.t.Helper()
	execute(l.t, l.pool, "update idem.records set expires_at = clock_timestamp()")
}
