package promises_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/seal"
)

// keysOf returns keys with these ids. The first is primary.
func keysOf(ids string) seal.Keys {
	keys := seal.Keys{Secrets: map[string][]byte{}}
	for _, id := range strings.Fields(ids) {
		keys.Secrets[id] = bytes.Repeat([]byte(id[:1]), seal.SecretSize)
	}
	keys.Primary, _, _ = strings.Cut(ids, " ")
	return keys
}

func sealed(ids string, options ...seal.Option) idem.Option {
	return idem.WithSealer(seal.New(keysOf(ids), options...))
}

// counted is a Sealer that counts its calls and fails on demand.
type counted struct {
	idem.Sealer
	seals, opens     atomic.Int64
	sealErr, openErr error
	id               string // used in place of the id of the key
}

func (c *counted) Seal(plain, bound []byte) (string, []byte, error) {
	c.seals.Add(1)
	if c.sealErr != nil {
		return "", nil, c.sealErr
	}
	id, text, err := c.Sealer.Seal(plain, bound)
	if c.id != "" {
		id = c.id
	}
	return id, text, err
}

func (c *counted) Open(keyID string, text, bound []byte) ([]byte, error) {
	c.opens.Add(1)
	if c.openErr != nil {
		return nil, c.openErr
	}
	return c.Sealer.Open(keyID, text, bound)
}

func countedSealer() *counted { return &counted{Sealer: seal.New(keysOf("a"))} }

func TestEverySealedResponseIsReplayedByteForByte(t *testing.T) {
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
				first, err := idemDo(ctx, l.pool, scope, name, hashA, answer(test.resp), sealed("a"))
				check("first", first.Response, err)
				again, err := idemDo(ctx, l.pool, scope, name, hashA, neverCalled(t), sealed("a"))
				check("replay", again.Response, err)
				again, err = idemDo(ctx, elsewhere, scope, name, hashA, neverCalled(t), sealed("a"), idem.WithReplayLikely())
				check("likely replay", again.Response, err)

				rejected, err := idemDo(ctx, l.pool, scope, name+" rejected", hashA, func(pgx.Tx) (idem.Response, error) {
					return idem.Response{}, idem.Reject(test.resp)
				}, sealed("a"))
				check("rejected", rejected.Response, err)
				again, err = idemDo(ctx, elsewhere, scope, name+" rejected", hashA, neverCalled(t), sealed("a"))
				check("rejected, replay", again.Response, err)

				err = pgx.BeginFunc(ctx, l.pool, func(tx pgx.Tx) error {
					for how, fn := range map[string]func(pgx.Tx) (idem.Response, error){
						"joined": answer(test.resp),
						"joined and rejected": func(pgx.Tx) (idem.Response, error) {
							return idem.Response{}, idem.Reject(test.resp)
						},
					} {
						joined, err := idem.DoTx(ctx, tx, scope, name+how, hashA, fn, sealed("a"))
						check(how, joined.Response, err)
						joined, err = idem.DoTx(ctx, tx, scope, name+how, hashA, neverCalled(t), sealed("a"))
						check(how+", replay", joined.Response, err)
					}
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			}
			if n := l.count("select count(*) from idem.records where sealed_by is distinct from 'a' or header is not null or body is null"); n != 0 {
				t.Errorf("%d records are not sealed as a whole", n)
			}
		})
	}
}

func TestSealedValueOfDoJSONIsReplayed(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	for _, replayed := range []bool{false, true} {
		value, res, err := idem.DoJSON(t.Context(), l.pool, scope, "k", hashA, func(pgx.Tx) (map[string]int, error) {
			return map[string]int{"order": 1}, nil
		}, sealed("a"))
		if err != nil || res.Replayed != replayed || value["order"] != 1 {
			t.Errorf("%v, %+v, %v", value, res, err)
		}
	}
}

func TestSealedRecordWithoutASealerIsAnErrorThatSaysWhatToDo(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	first, err := idemDo(ctx, l.pool, scope, "k", hashA, l.charge("k"), sealed("a"))
	if err != nil {
		t.Fatal(err)
	}
	for name, do := range outers {
		wantUnreadable(t, name, first.ExecutionID, func() (idem.Result, error) { return do(ctx, l, "k", l.charge("k")) })
	}
	wantUnreadable(t, "likely replay", first.ExecutionID, func() (idem.Result, error) {
		return idemDo(ctx, l.pool, scope, "k", hashA, l.charge("k"), idem.WithReplayLikely())
	})
	if _, err := idemDo(ctx, l.pool, scope, "k", hashB, l.charge("k")); !errors.Is(err, idem.ErrMismatch) {
		t.Errorf("another hash: %v", err)
	}
	l.wantOnce("k")

	tx := l.begin(ctx)
	if _, err := idem.DoTx(ctx, tx, scope, "k", hashA, neverCalled(t)); !errors.Is(err, idem.ErrUnreadable) {
		t.Error(err)
	}
	if err := errors.Join(note(ctx, tx, "the caller's"), tx.Commit(ctx)); err != nil {
		t.Errorf("the transaction of the caller's is spoilt: %v", err)
	}
}

func wantUnreadable(t *testing.T, name, executionID string, do func() (idem.Result, error)) {
	t.Helper()
	res, err := do()
	var unreadable *idem.UnreadableError
	if !errors.As(err, &unreadable) || !errors.Is(err, idem.ErrUnreadable) || idem.Retryable(err) || res.Body != nil {
		t.Fatalf("%s: %+v, %v", name, res, err)
	}
	if unreadable.ExecutionID != executionID || unreadable.SealedBy != "a" || !containsAll(err.Error(), "WithSealer", `"a"`, executionID) {
		t.Errorf("%s: %#v: %v", name, unreadable, err)
	}
}

func TestMismatchOpensNothing(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l, s := newLedger(t), countedSealer()
	l.charged(ctx, "plain")
	if _, err := idemDo(ctx, l.pool, scope, "sealed", hashA, l.charge("sealed"), idem.WithSealer(s)); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"plain", "sealed"} {
		for _, likely := range [][]idem.Option{nil, {idem.WithReplayLikely()}} {
			_, err := idemDo(ctx, l.pool, scope, key, hashB, neverCalled(t), append(likely, idem.WithSealer(s))...)
			if !errors.Is(err, idem.ErrMismatch) {
				t.Errorf("%s: %v", key, err)
			}
		}
	}
	if n := s.opens.Load(); n != 0 {
		t.Errorf("%d were opened", n)
	}
}

// A response in memory is not sealed. Neither the caller that executed nor a duplicate that waited
// in the same process has to open it.
func TestDuplicatesInMemoryShareTheResponseWithoutOpeningIt(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l, s, w := newLedger(t), countedSealer(), newWatch()
	opts := []idem.Option{idem.WithSealer(s), idem.WithWait(limit), idem.WithObserver(w)}
	first := l.hold(t, "k", hashA, nil, opts...)
	const duplicates = 20
	results := make(chan idem.Result, duplicates)
	for range duplicates {
		go func() {
			res, err := idemDo(ctx, l.pool, scope, "k", hashA, l.charge("k"), opts...)
			if err != nil {
				t.Error(err)
			}
			results <- res
		}()
	}
	w.await(t, "waiting", duplicates)
	first.release()
	if err := first.wait(t); err != nil {
		t.Fatal(err)
	}
	first.result.Replayed = true
	for range duplicates {
		if diff := cmp.Diff(first.result, await(t, "a duplicate", results)); diff != "" {
			t.Error(diff)
		}
	}
	if seals, opens := s.seals.Load(), s.opens.Load(); seals != 1 || opens != 0 {
		t.Errorf("sealed %d times, opened %d times", seals, opens)
	}
	l.wantOnce("k")
}

// The outcome of a COMMIT can be found even if this process cannot open what it has sealed.
func TestLostAnswerToCommitOfASealedResponseIsResolvedWithoutOpeningIt(t *testing.T) {
	t.Parallel()
	ends := map[string]error{"completed": nil, "rejected": idem.Reject(idem.Response{
		Status: 402, Header: map[string][]string{"A": {"b"}}, Body: []byte("declined")})}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, s := newProxied(t), countedSealer()
			s.openErr = errors.New("out of order")
			pool := pgtest.Open(t, p.proxy.DSN())
			trap := p.proxy.Arm(pgproxy.AfterAnswer(pgproxy.IsCommit, "COMMIT"), pgproxy.Reset)
			first, err := idemDo(t.Context(), pool, scope, "k", hashA, func(tx pgx.Tx) (idem.Response, error) {
				resp, err := p.charge("k")(tx)
				return resp, errors.Join(err, end)
			}, idem.WithObserver(p.watch), idem.WithSealer(s))
			await(t, "the trap", trap.Fired())
			if err != nil || first.Replayed || p.watch.count("resolved_committed") != 1 {
				t.Fatalf("%+v, %v, %v", first, err, p.watch.all())
			}
			s.openErr = nil
			again, err := idemDo(t.Context(), pool, scope, "k", hashA, neverCalled(t), idem.WithSealer(s))
			first.Replayed = true
			if diff := cmp.Diff(first, again); err != nil || diff != "" {
				t.Errorf("%v\n%s", err, diff)
			}
		})
	}
}

func TestSealerThatFailsCommitsNothing(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	for name, s := range map[string]*counted{
		"an error":              {Sealer: seal.New(keysOf("a")), sealErr: errBusiness},
		"an id with a NUL":      {Sealer: seal.New(keysOf("a")), id: "a\x00"},
		"an id that is no text": {Sealer: seal.New(keysOf("a")), id: "\xff"},
		"an id that is long":    {Sealer: seal.New(keysOf("a")), id: strings.Repeat("x", 256)},
	} {
		for how, fn := range map[string]func(pgx.Tx) (idem.Response, error){
			"": l.charge(name), " rejected": func(pgx.Tx) (idem.Response, error) { return ok, idem.Reject(ok) },
		} {
			_, err := idemDo(ctx, l.pool, scope, name, hashA, fn, idem.WithSealer(s))
			if err == nil || errors.Is(err, errBusiness) != (name == "an error") {
				t.Errorf("%s%s: %v", name, how, err)
			}
			tx := l.begin(ctx)
			if _, err := idem.DoTx(ctx, tx, scope, name, hashA, fn, idem.WithSealer(s)); err == nil {
				t.Errorf("%s%s: DoTx does not fail", name, how)
			}
			if err := tx.Commit(ctx); err != nil {
				t.Error(err)
			}
			l.wantNone(name)
		}
	}
	l.wantHealthy()
}

func TestLimitOfASealedResponseIsThatOfThePlainOne(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	resp := idem.Response{Header: map[string][]string{"A": {"b"}}, Body: make([]byte, 1000)}
	const size = 1000 + len(`{"A":["b"]}`)
	var tooLarge *idem.ResponseTooLargeError
	_, err := idemDo(ctx, l.pool, scope, "k", hashA, answer(resp), sealed("a"), idem.WithMaxResponse(size-1))
	if !errors.As(err, &tooLarge) || tooLarge.Size != size {
		t.Errorf("above the limit: %v", err)
	}
	for range 2 {
		if _, err := idemDo(ctx, l.pool, scope, "k", hashA, answer(resp), sealed("a"), idem.WithMaxResponse(size)); err != nil {
			t.Errorf("at the limit: %v", err)
		}
	}
}

// A new record does not inherit anything about sealing from the expired record of its key.
func TestExpiredRecordIsTakenOverWhicheverOfTheTwoIsSealed(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	plainly, accepting := []idem.Option{}, []idem.Option{sealed("a", seal.AcceptPlain())}
	for name, opts := range map[string][2][]idem.Option{
		"sealed, then plain": {accepting, plainly}, "plain, then sealed": {plainly, accepting}, "sealed twice": {accepting, accepting},
	} {
		if _, err := idemDo(ctx, l.pool, scope, name, hashA, l.charge(name), opts[0]...); err != nil {
			t.Fatal(err)
		}
		l.expire(name)
		second, err := idemDo(ctx, l.pool, scope, name, hashB, func(tx pgx.Tx) (idem.Response, error) {
			var clean bool
			err := tx.QueryRow(ctx, "select sealed_by is null and body is null from idem.records where key = $1", name).Scan(&clean)
			if err != nil || !clean {
				t.Errorf("%s: after the takeover clean is %t, %v", name, clean, err)
			}
			return l.charge(name)(tx)
		}, opts[1]...)
		if err != nil || second.Replayed {
			t.Fatalf("%s: %+v, %v", name, second, err)
		}
		again, err := idemDo(ctx, l.pool, scope, name, hashB, l.charge(name), opts[1]...)
		second.Replayed = true
		if diff := cmp.Diff(second, again); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", name, err, diff)
		}
	}
}

func TestRecordWithoutAResponseIsNotOpened(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l, s := newLedger(t), countedSealer()
	_, err := idemDo(ctx, l.pool, scope, "k", hashA, func(tx pgx.Tx) (idem.Response, error) {
		_, err := tx.Exec(ctx, "commit")
		return ok, err
	}, idem.WithSealer(s))
	if !errors.Is(err, idem.ErrTxEnded) {
		t.Fatal(err)
	}
	if _, err := idemDo(ctx, l.pool, scope, "k", hashA, neverCalled(t), idem.WithSealer(s)); !errors.Is(err, idem.ErrTxEnded) {
		t.Error(err)
	}
	if n := s.opens.Load(); n != 0 {
		t.Errorf("opened %d times", n)
	}
}

func TestSealerThatIsWrongIsRefusedBeforehand(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	for name, s := range map[string]idem.Sealer{
		"nil": nil, "a typed nil": (*seal.Sealer)(nil), "bad keys": seal.New(seal.Keys{Primary: "a", Secrets: map[string][]byte{"a": []byte("short")}}),
	} {
		opt := idem.WithSealer(s)
		tx := l.begin(ctx)
		_, doErr := idemDo(ctx, l.pool, scope, name, hashA, neverCalled(t), opt)
		_, doTxErr := idem.DoTx(ctx, tx, scope, name, hashA, neverCalled(t), opt)
		for how, err := range map[string]error{"CheckOptions": idem.CheckOptions(opt), "Do": doErr, "DoTx": doTxErr} {
			if err == nil || !strings.Contains(err.Error(), "WithSealer") {
				t.Errorf("%s, %s: %v", name, how, err)
			}
		}
	}
	if err := idem.CheckOptions(idem.WithSealer(countedSealer())); err != nil {
		t.Errorf("a Sealer without Check: %v", err)
	}
}

func TestErrorsOfASealedResponseTellNothingOfIt(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	const key, private = "a key that is long enough", "hush hush"
	_, err := idemDo(ctx, l.pool, scope, key, hashA, answer(idem.Response{
		Header: map[string][]string{private: {private}}, Body: []byte(private)}), sealed("a"))
	if err != nil {
		t.Fatal(err)
	}
	hostile := fmt.Sprintf("update idem.records set sealed_by = '%s' || chr(10)", strings.Repeat("y", 1<<16))
	for _, spoil := range []string{"select", "update idem.records set status = 7", hostile} {
		if _, err := l.pool.Exec(ctx, spoil); err != nil {
			t.Fatal(err)
		}
		for _, opts := range [][]idem.Option{nil, {sealed("b")}, {sealed("a")}} {
			_, err := idemDo(ctx, l.pool, scope, key, hashA, neverCalled(t), opts...)
			if err == nil && spoil == "select" && opts != nil {
				continue
			}
			text := fmt.Sprintf("%v %+v", err, err)
			if err == nil || strings.Contains(text, private) || strings.Contains(text, key) || strings.Contains(text, "\n") || len(text) > 1000 {
				t.Errorf("%.2000s", text)
			}
		}
	}
}
