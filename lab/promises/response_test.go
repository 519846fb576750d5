package promises_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
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
	"status only":       {resp: idem.Response{Status: 204}},
	"status negative":   {resp: idem.Response{Status: -1}},
	"status smallest":   {resp: idem.Response{Status: math.MinInt32}},
	"status largest":    {resp: idem.Response{Status: math.MaxInt32}},
	"body empty":        {resp: idem.Response{Body: []byte{}}, want: &idem.Response{}},
	"body NUL":          {resp: idem.Response{Body: []byte{0}}},
	"body binary":       {resp: idem.Response{Body: allBytes()}},
	"body invalid UTF8": {resp: idem.Response{Body: []byte("\xff\xfe\xc0\x80")}},
	"body hex prefix":   {resp: idem.Response{Body: []byte(`\x414243`)}},
	"body backslashes":  {resp: idem.Response{Body: []byte(`\\\000\'''`)}},
	"body spaces":       {resp: idem.Response{Body: []byte(" \n\t ")}},
	"body JSON":         {resp: idem.Response{Body: []byte("{\"b\":1, \"a\" :1.0,\"a\":9007199254740993}\n")}},
	"body large":        {resp: idem.Response{Body: bytes.Repeat(allBytes(), 64)}},
	"header empty":      {resp: idem.Response{Header: header{}}, want: &idem.Response{}},
	"header values":     {resp: idem.Response{Header: header{"Set-Cookie": {"a=1, b", "a=2; Expires=Sat, 21 Nov 2026", ""}, "ETag": {`W/"x"`}}}},
	"header order":      {resp: idem.Response{Header: header{"V": {"c", "a", "b", "a"}}}},
	"header no values":  {resp: idem.Response{Header: header{"Empty": {}}}},
	"header nil values": {resp: idem.Response{Header: header{"Nil": nil, "A": {"b"}}}, want: &idem.Response{Header: header{"Nil": {}, "A": {"b"}}}},
	"header empty name": {resp: idem.Response{Header: header{"": {"nameless"}}}},
	"header case":       {resp: idem.Response{Header: header{"x": {"1"}, "X": {"2"}, "é": {"3"}, "e\u0301": {"4"}}}},
	"header unicode":    {resp: idem.Response{Header: header{"X-Ü😀": {"\u2028\u2029\ufeff\ufffd\U0010ffff", "а"}}}},
	"header markup":     {resp: idem.Response{Header: header{"<&>": {`<a href="x">&amp;</a>`, `\u003c`, `\`, `"`, "'"}}}},
	"header controls":   {resp: idem.Response{Header: header{"\x01\r\n": {"\x01\x1f\x7f\u0080\t\n"}}}},
	"header spaces":     {resp: idem.Response{Header: header{" X ": {" ", "  v  "}}}},
	"header hostile":    {resp: idem.Response{Header: header{hostileHeader: {hostileHeader}}}},
	"header many":       {resp: idem.Response{Header: manyHeaders()}},
}

// hostileHeader is hostile without the bytes that a header must not contain.
var hostileHeader = strings.ReplaceAll(hostile, "\x00", "")

func manyHeaders() header {
	h := header{}
	for i := range 200 {
		h[fmt.Sprint("X-", i)] = []string{strings.Repeat("v", i%40), fmt.Sprint(i)}
	}
	return h
}

// Everybody gets the same response: the caller that executes, a replay from the database, and a
// duplicate that waited in memory. It does not matter how the response was recorded.
func TestEveryResponseIsReplayedByteForByte(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, mode := range execModes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.DSN(t)
			l, elsewhere := ledgerOn(t, pgtest.Open(t, dsn, withMode(mode))), pgtest.Open(t, dsn)
			for name, test := range responses {
				want := test.resp
				if test.want != nil {
					want = *test.want
				}
				check := func(how string, got idem.Response, err error) {
					t.Helper()
					if diff := cmp.Diff(want, got); err != nil || diff != "" {
						t.Errorf("%s: %s: %v (-want +got)\n%.2000s", name, how, err, diff)
					}
				}
				first, err := idemDo(ctx, l.pool, scope, name, hashA, answer(test.resp))
				check("first", first.Response, err)
				again, err := idemDo(ctx, l.pool, scope, name, hashA, neverCalled(t))
				check("replay", again.Response, err)
				again, err = idemDo(ctx, elsewhere, scope, name, hashA, neverCalled(t))
				check("replay elsewhere", again.Response, err)

				rejected, err := idemDo(ctx, l.pool, scope, name+" rejected", hashA, func(pgx.Tx) (idem.Response, error) {
					return idem.Response{}, idem.Reject(test.resp)
				})
				check("rejected", rejected.Response, err)
				again, err = idemDo(ctx, elsewhere, scope, name+" rejected", hashA, neverCalled(t))
				check("rejected, replay", again.Response, err)

				err = pgx.BeginFunc(ctx, l.pool, func(tx pgx.Tx) error {
					joined, err := idem.DoTx(ctx, tx, scope, name+" joined", hashA, answer(test.resp))
					check("joined", joined.Response, err)
					joined, err = idem.DoTx(ctx, tx, scope, name+" joined", hashA, neverCalled(t))
					check("joined, replay", joined.Response, err)
					return err
				})
				if err != nil {
					t.Error(err)
				}
				again, err = idemDo(ctx, elsewhere, scope, name+" joined", hashA, neverCalled(t))
				check("joined, replay elsewhere", again.Response, err)
			}
		})
	}
}

func TestFollowerInMemoryGetsTheSameResponse(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	for name, test := range responses {
		begun, gate, w := make(chan struct{}), make(chan struct{}), newWatch()
		var first, follower idem.Result
		var calls sync.WaitGroup
		calls.Go(func() {
			var err error
			first, err = idemDo(ctx, l.pool, scope, name, hashA, func(pgx.Tx) (idem.Response, error) {
				close(begun)
				<-gate
				return test.resp, nil
			})
			if err != nil {
				t.Error(err)
			}
		})
		await(t, "fn to begin", begun)
		calls.Go(func() {
			var err error
			if follower, err = idemDo(ctx, l.pool, scope, name, hashA, neverCalled(t), idem.WithObserver(w), idem.WithWait(limit)); err != nil {
				t.Error(err)
			}
		})
		w.await(t, "waiting", 1)
		close(gate)
		calls.Wait()
		replay, err := idemDo(ctx, l.pool, scope, name, hashA, neverCalled(t))
		if diff := cmp.Diff(replay, follower); err != nil || diff != "" {
			t.Errorf("%s: %v (-replay +follower)\n%.2000s", name, err, diff)
		}
		first.Replayed = true
		if diff := cmp.Diff(replay, first); diff != "" {
			t.Errorf("%s: (-replay +first)\n%.2000s", name, diff)
		}
	}
}

// A caller that changes its response does not change that of another caller.
func TestNoCallerCanChangeTheResponseOfAnother(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	want := idem.Response{Status: 200, Header: header{"A": {"1", "2"}}, Body: []byte("response")}
	spoil := func(r idem.Result) {
		for i := range r.Body {
			r.Body[i] = 'x'
		}
		_ = append(r.Body, "more"...)
		r.Header["A"][0] = "changed"
		_ = append(r.Header["A"], "more")
		r.Header["B"] = []string{"added"}
		delete(r.Header, "A")
	}
	begun, gate, w := make(chan struct{}), make(chan struct{}), newWatch()
	var calls sync.WaitGroup
	for i := range 16 {
		fn := neverCalled(t)
		if i == 0 {
			fn = func(pgx.Tx) (idem.Response, error) {
				close(begun)
				<-gate
				return idem.Response{Status: 200, Header: header{"A": {"1", "2"}}, Body: []byte("response")}, nil
			}
		}
		calls.Go(func() {
			res, err := idemDo(ctx, l.pool, scope, "k", hashA, fn, idem.WithObserver(w), idem.WithWait(limit))
			if diff := cmp.Diff(want, res.Response); err != nil || diff != "" {
				t.Errorf("%v\n%s", err, diff)
				return
			}
			spoil(res)
		})
		if i == 0 {
			await(t, "fn to begin", begun)
		}
	}
	w.await(t, "waiting", 15)
	close(gate)
	calls.Wait()
	for range 2 {
		res, err := idemDo(ctx, l.pool, scope, "k", hashA, neverCalled(t))
		if diff := cmp.Diff(want, res.Response); err != nil || diff != "" {
			t.Errorf("%v\n%s", err, diff)
		}
		spoil(res)
	}
}

func TestResponseOfFnItselfIsNotChanged(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	resp := idem.Response{Header: header{"Nil": nil}, Body: []byte{}}
	if _, err := idemDo(ctx, l.pool, scope, "k", hashA, answer(resp)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(idem.Response{Header: header{"Nil": nil}, Body: []byte{}}, resp); diff != "" {
		t.Error(diff)
	}
}

func TestResponseThatCannotBeKeptExactlyIsRefusedAndRolledBack(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t, maxConns(1))
	for name, resp := range map[string]idem.Response{
		"status above":           {Status: math.MaxInt32 + 1},
		"status below":           {Status: math.MinInt32 - 1},
		"status largest":         {Status: math.MaxInt},
		"value invalid UTF-8":    {Header: header{"X": {"ok", "\xff"}}},
		"value lone surrogate":   {Header: header{"X": {"\xed\xa0\x80"}}},
		"value NUL":              {Header: header{"X": {"a\x00b"}}},
		"name invalid UTF-8":     {Header: header{"\xff": {"v"}}},
		"name NUL":               {Header: header{"\x00": nil}},
		"two names made one":     {Header: header{"\xff": {"1"}, "\xfe": {"2"}}},
		"value Latin-1":          {Header: header{"Content-Disposition": {"filename=caf\xe9"}}},
		"value truncated":        {Header: header{"X": {"€"[:2]}}},
		"name with a late fault": {Header: header{strings.Repeat("x", 1000) + "\x00": {"v"}}},
	} {
		for how, end := range map[string]error{"": nil, " rejected": idem.Reject(resp)} {
			made := l.pool.Stat().NewConnsCount()
			res, err := idemDo(ctx, l.pool, scope, name+how, hashA, func(tx pgx.Tx) (idem.Response, error) {
				_, err := l.charge(name + how)(tx)
				return resp, errors.Join(err, end)
			})
			if !errors.Is(err, idem.ErrInvalidResponse) || idem.Retryable(err) {
				t.Errorf("%s%s: err = %v, want ErrInvalidResponse", name, how, err)
			}
			if diff := cmp.Diff(idem.Result{}, res); diff != "" {
				t.Error(diff)
			}
			l.wantNone(name + how)
			l.wantSameConnections(made)
			l.wantFree(name + how)
		}
	}
}

func TestResponseAboveTheLimitIsRefusedAndRolledBack(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t, maxConns(1))
	encoded := len(`{"A":["<"]}`) + len(`\u003c`) - len("<") // the stored form
	for _, limit := range []int{0, 1, 100, 1 << 20} {
		for _, h := range []header{nil, {"A": {"<"}}} {
			inHeader := 0
			if h != nil {
				inHeader = encoded
			}
			for over := -1; over <= 1; over++ {
				size := limit + over
				if size < inHeader {
					continue
				}
				key := fmt.Sprint(limit, over, len(h))
				opts := []idem.Option{idem.WithMaxResponse(limit)}
				if limit == 1<<20 {
					opts = nil // that is the default
				}
				resp := idem.Response{Header: h, Body: bytes.Repeat([]byte{0xff}, size-inHeader)}
				res, err := idemDo(ctx, l.pool, scope, key, hashA, func(tx pgx.Tx) (idem.Response, error) {
					_, err := l.charge(key)(tx)
					return resp, err
				}, opts...)
				if over <= 0 {
					if err != nil || len(res.Body) != size-inHeader {
						t.Errorf("%d bytes of %d: %v", size, limit, err)
					}
					if again, err := idemDo(ctx, l.pool, scope, key, hashA, neverCalled(t), opts...); err != nil || !bytes.Equal(again.Body, resp.Body) {
						t.Errorf("%d bytes of %d: replay: %v", size, limit, err)
					}
					l.wantOnce(key)
					continue
				}
				var tooLarge *idem.ResponseTooLargeError
				isTooLarge := errors.As(err, &tooLarge)
				if !isTooLarge || !errors.Is(err, idem.ErrResponseTooLarge) || idem.Retryable(err) {
					t.Errorf("%d bytes of %d: err = %v", size, limit, err)
				} else if tooLarge.Size != size || tooLarge.Limit != limit {
					t.Errorf("%d bytes of %d: the error says %+v", size, limit, tooLarge)
				}
				l.wantNone(key)
				l.wantFree(key)
			}
		}
	}
	rejected := idem.Response{Body: make([]byte, 101)}
	_, err := idemDo(ctx, l.pool, scope, "rejected", hashA, func(tx pgx.Tx) (idem.Response, error) {
		l.charge("rejected")(tx)
		return idem.Response{}, idem.Reject(rejected)
	}, idem.WithMaxResponse(100))
	if !errors.Is(err, idem.ErrResponseTooLarge) {
		t.Errorf("rejected: err = %v", err)
	}
	l.wantNone("rejected")
}

// A limit applies to responses that are stored later. A lower limit must not make a stored response
// unreadable.
func TestLimitDoesNotConcernReplays(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	if _, err := idemDo(ctx, l.pool, scope, "k", hashA, answer(ok)); err != nil {
		t.Fatal(err)
	}
	if res, err := idemDo(ctx, l.pool, scope, "k", hashA, neverCalled(t), idem.WithMaxResponse(0)); err != nil || !bytes.Equal(res.Body, ok.Body) {
		t.Errorf("%+v, %v", res, err)
	}
}

func TestHeaderIsStoredAsAnObjectOfArraysOfStrings(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	if _, err := idemDo(ctx, l.pool, scope, "k", hashA, answer(idem.Response{Header: header{"A": {"1", "2"}, "B": nil, "C": {}}})); err != nil {
		t.Fatal(err)
	}
	var stored json.RawMessage
	if err := l.pool.QueryRow(ctx, "select header from idem.records").Scan(&stored); err != nil {
		t.Fatal(err)
	}
	if want := `{"A": ["1", "2"], "B": [], "C": []}`; string(stored) != want {
		t.Errorf("stored %s, want %s", stored, want)
	}
}
