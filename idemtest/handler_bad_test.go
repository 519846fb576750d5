package idemtest_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemhttp"
	"github.com/idem-go/idem/idemtest"
)

func itemOf(r *http.Request) string {
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	var in struct{ Item string }
	json.Unmarshal(body, &in)
	return in.Item
}

func created(w http.ResponseWriter, id int) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Location", fmt.Sprintf("/orders/%d", id))
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, `{"id":%d}`, id)
}

// A handlerCase is a handler with the promise that it breaks.
type handlerCase struct {
	name   string
	breaks string
	make   shop
	change func(s *idemtest.HandlerSuite)
}

var badHandlers = []handlerCase{
	{name: "no idempotency at all", breaks: "on-record", make: func(t testing.TB, pool *pgxpool.Pool) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { answerOrder(w, r, pool) })
	}},
	{name: "keys remembered in memory", breaks: "on-record", make: func(t testing.TB, pool *pgxpool.Pool) http.Handler {
		return inMemory(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { answerOrder(w, r, pool) }))
	}},
	// Known from fullstackhero/dotnet-starter-kit#1333: replay never engaged.
	{name: "key read from another header, and optional", breaks: "on-record", make: configured(idemhttp.Config{Header: "X-Idempotency-Key", Optional: true})},
	// Known from fullstackhero/dotnet-starter-kit#1333.
	{name: "method needs no key", breaks: "on-record", make: func(t testing.TB, pool *pgxpool.Pool) http.Handler {
		return wrapped(t, pool, idemhttp.Config{Methods: []string{http.MethodPatch}}, func(w http.ResponseWriter, r *http.Request) { answerOrder(w, r, pool) })
	}},
	{name: "effect on the pool", breaks: "effect-in-transaction", make: func(t testing.TB, pool *pgxpool.Pool) http.Handler {
		return wrapped(t, pool, idemhttp.Config{}, func(w http.ResponseWriter, r *http.Request) { answerOrder(w, r, pool) })
	}},
	{name: "effect before the middleware", breaks: "one-effect", make: func(t testing.TB, pool *pgxpool.Pool) http.Handler {
		next := wrapped(t, pool, idemhttp.Config{}, func(w http.ResponseWriter, r *http.Request) { created(w, 1) })
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, err := place(r, pool); err != nil {
				http.Error(w, "", http.StatusServiceUnavailable)
				return
			}
			next.ServeHTTP(w, r)
		})
	}},
	{name: "effect after the middleware", breaks: "effect-with-record", make: func(t testing.TB, pool *pgxpool.Pool) http.Handler {
		next := wrapped(t, pool, idemhttp.Config{}, func(w http.ResponseWriter, r *http.Request) { created(w, 1) })
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			probe := httptest.NewRecorder()
			next.ServeHTTP(probe, r)
			if probe.Code == http.StatusCreated && probe.Header().Get("Idempotency-Replayed") == "" {
				place(r, pool)
			}
			forward(w, probe)
		})
	}},
	{name: "key made by the server", breaks: "one-key", make: rekeyed(func(r *http.Request) string { return rand.Text() })},
	// Known from koala73/worldmonitor#4728.
	{name: "scope is the address of the client", breaks: "one-key", make: scoped(func(r *http.Request) string { return r.RemoteAddr })},
	{name: "scope contains the time in seconds", breaks: "one-key", make: scoped(func(r *http.Request) string {
		return r.Header.Get("Authorization") + time.Now().Format(time.RFC3339)
	})},
	// Known from Universal-Commerce-Protocol/ucp#664 (an envelope that varies).
	{name: "fingerprint contains the time", breaks: "same-fingerprint", make: fingerprinted(func(r *http.Request, body []byte) idem.Hash {
		return idem.HashBytes(body, []byte(time.Now().Format(time.RFC3339)))
	})},
	// Known from Universal-Commerce-Protocol/ucp#664 (an envelope that varies).
	{name: "fingerprint contains the user agent", breaks: "same-fingerprint", make: fingerprinted(func(r *http.Request, body []byte) idem.Hash {
		return idem.HashBytes(body, []byte(r.UserAgent()))
	})},
	// Known from Universal-Commerce-Protocol/ucp#664 (an envelope that varies).
	{name: "fingerprint contains all headers", breaks: "same-fingerprint", make: fingerprinted(func(r *http.Request, body []byte) idem.Hash {
		var all bytes.Buffer
		r.Header.Write(&all)
		return idem.HashBytes(body, all.Bytes())
	})},
	// Known from mikkelchokolate/Veil#65 (a part of the request ignored).
	{name: "fingerprint omits the body", breaks: "payload-in-fingerprint", make: fingerprinted(func(r *http.Request, body []byte) idem.Hash {
		return idem.HashBytes([]byte(r.URL.Path))
	})},
	// Known from mikkelchokolate/Veil#65 (a part of the request ignored).
	{name: "fingerprint contains a member that does not exist", breaks: "payload-in-fingerprint", make: fingerprinted(func(r *http.Request, body []byte) idem.Hash {
		var in struct{ Product string }
		json.Unmarshal(body, &in)
		return idem.HashBytes([]byte(in.Product))
	})},
	{name: "payload is part of the key", breaks: "payload-refused", make: scoped(func(r *http.Request) string {
		return idem.Scope(r.Header.Get("Authorization"), itemOf(r))
	})},
	{name: "one key for a session", breaks: "every-key", make: rekeyed(func(r *http.Request) string { return r.Header.Get("Authorization") })},
	{name: "long keys are cut off", breaks: "every-key", make: rekeyed(func(r *http.Request) string { return r.Header.Get("Idempotency-Key")[:32] })},
	// Known from arun0009/idempotent#217.
	{name: "scope is shared by all principals", breaks: "own-scope", make: scoped(func(r *http.Request) string { return "POST /orders" })},
	// Known from RamaAditya49/titen#37.
	{name: "principal in the fingerprint instead of the scope", breaks: "own-scope", make: configured(idemhttp.Config{
		Scope: func(r *http.Request) (string, error) { return "POST /orders", nil },
		Fingerprint: func(r *http.Request, body []byte) (idem.Hash, error) {
			return idem.HashBytes(body, []byte(r.Header.Get("Authorization"))), nil
		}})},
	// Known from gin's middleware for a route and fiber's adaptor.
	{name: "answer written before the middleware's end", breaks: "full-answer", make: func(t testing.TB, pool *pgxpool.Pool) http.Handler {
		// As gin does for each route: the handler writes to the writer that it got before.
		return http.HandlerFunc(func(outer http.ResponseWriter, r *http.Request) {
			wrapped(t, pool, idemhttp.Config{}, func(_ http.ResponseWriter, r *http.Request) { throughTx(outer, r) }).ServeHTTP(quiet{outer}, r)
		})
	}},
	{name: "answered 202, committed later", breaks: "effect-with-record", make: func(t testing.TB, pool *pgxpool.Pool) http.Handler {
		return wrapped(t, pool, idemhttp.Config{}, func(w http.ResponseWriter, r *http.Request) {
			item, tenant := itemOf(r), r.Header.Get("Authorization")
			inBackground(t, func() {
				time.Sleep(2 * time.Second) // a slow queue
				pool.Exec(context.Background(), "INSERT INTO orders (tenant, item) VALUES ($1, $2)", tenant, item)
			})
			w.WriteHeader(http.StatusAccepted)
		})
	}},
	// Known from LerianStudio/midaz#709.
	{name: "errors of the database are 400", breaks: "failure-not-final", make: wrapping(func(w http.ResponseWriter, r *http.Request) {
		id, err := place(r, idemhttp.Tx(r.Context()))
		if err != nil {
			http.Error(w, "invalid order", http.StatusBadRequest)
			return
		}
		created(w, id)
	})},
	// Known from ietf-wg-httpapi/idempotency#41.
	{name: "a server error is final", breaks: "failure-not-final", make: configured(idemhttp.Config{Decide: func(status int) idemhttp.Decision {
		if status < 400 {
			return idemhttp.Commit
		}
		return idemhttp.Undo
	}})},
	// Known from authgear/authgear-server#1724, enyineer/checkstack#233.
	{name: "a second connection inside", breaks: "one-connection", make: func(t testing.TB, pool *pgxpool.Pool) http.Handler {
		return wrapped(t, pool, idemhttp.Config{}, func(w http.ResponseWriter, r *http.Request) {
			var n int
			if err := pool.QueryRow(r.Context(), "SELECT count(*) FROM orders").Scan(&n); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			throughTx(w, r)
		})
	}},
	// Known from Zipstack/unstract#2101 (kept for less than the longest run).
	{name: "remembered for a minute", breaks: "remembered", make: configured(idemhttp.Config{TTL: time.Minute})},
	// Known from aws-samples/sample-agentcore-cloudfront-x402-payments#40.
	{name: "another system is called inside", breaks: "effect-in-transaction", make: func(t testing.TB, pool *pgxpool.Pool) http.Handler {
		return wrapped(t, pool, idemhttp.Config{}, func(w http.ResponseWriter, r *http.Request) {
			bank(pool).Add(1)
			throughTx(w, r)
		})
	}, change: func(s *idemtest.HandlerSuite) {
		s.Effects = func(ctx context.Context, pool *pgxpool.Pool) (int, error) { return int(bank(pool).Load()), nil }
	}},
	// Known from functions that are run again, as in stroppy-io/stroppy#167.
	{name: "the first call of a process has the effect", breaks: "effect-with-record", make: func(t testing.TB, pool *pgxpool.Pool) http.Handler {
		var once sync.Once
		return wrapped(t, pool, idemhttp.Config{}, func(w http.ResponseWriter, r *http.Request) {
			var err error
			once.Do(func() { _, err = place(r, idemhttp.Tx(r.Context())) })
			if err != nil {
				http.Error(w, "", http.StatusInternalServerError)
				return
			}
			w.WriteHeader(http.StatusCreated)
		})
	}, change: func(s *idemtest.HandlerSuite) { s.Stranger = nil }},
	// Known from square1-io/laravel-idempotency#1, alphagov/pay-connector#4460,
	// mastodon/mastodon#37879.
	{name: "look first, then insert", breaks: "once-at-once", make: func(t testing.TB, pool *pgxpool.Pool) http.Handler {
		exec(t, pool, `ALTER TABLE orders ADD key text`)
		return lookThenPlace(t, pool)
	}, change: func(s *idemtest.HandlerSuite) { s.Other = nil }},
	// Known from aws-powertools/powertools-lambda-python#738,
	// VilledeMontreal/express-idempotency#32.
	{name: "a row marks a key in progress", breaks: "key-free", make: func(t testing.TB, pool *pgxpool.Pool) http.Handler {
		exec(t, pool, `CREATE TABLE busy (key text PRIMARY KEY)`)
		next := wrapped(t, pool, idemhttp.Config{}, throughTx)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			key := r.Header.Get("Authorization") + r.Header.Get("Idempotency-Key")
			tag, err := pool.Exec(r.Context(), "INSERT INTO busy VALUES ($1) ON CONFLICT DO NOTHING", key)
			if err != nil || tag.RowsAffected() == 0 {
				w.Header().Set("Retry-After", "1")
				http.Error(w, "in progress", http.StatusConflict)
				return
			}
			next.ServeHTTP(w, r)
			pool.Exec(r.Context(), "DELETE FROM busy WHERE key = $1", key)
		})
	}},
	// Known from VilledeMontreal/express-idempotency#32.
	{name: "a session lock that stays after a failure", breaks: "key-free", make: func(t testing.TB, pool *pgxpool.Pool) http.Handler {
		var mu sync.Mutex
		busy := map[string]bool{}
		next := wrapped(t, pool, idemhttp.Config{}, throughTx)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			key := r.Header.Get("Authorization") + r.Header.Get("Idempotency-Key")
			mu.Lock()
			taken := busy[key]
			busy[key] = true
			mu.Unlock()
			if taken {
				http.Error(w, "in progress", http.StatusServiceUnavailable)
				return
			}
			next.ServeHTTP(w, r)
			if status(w) < 500 {
				mu.Lock()
				delete(busy, key)
				mu.Unlock()
			}
		})
	}},
	// Known from idempot-dev/idempot-js#181, #186.
	{name: "simultaneous duplicates get a failure", breaks: "answered-at-once", make: configured(idemhttp.Config{Wait: -1, Render: func(w http.ResponseWriter, r *http.Request, p *idemhttp.Problem) {
		http.Error(w, "duplicate request", http.StatusBadRequest)
	}})},
	{name: "answer contains the time of each request", breaks: "same-answer", make: func(t testing.TB, pool *pgxpool.Pool) http.Handler {
		next := wrapped(t, pool, idemhttp.Config{}, throughTx)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(w, r)
			fmt.Fprint(w, time.Now().UnixNano())
		})
	}},
	// Known from fullstackhero/dotnet-starter-kit#1333.
	{name: "answer says 200 the second time", breaks: "same-answer", make: func(t testing.TB, pool *pgxpool.Pool) http.Handler {
		next := wrapped(t, pool, idemhttp.Config{}, throughTx)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			inner := httptest.NewRecorder()
			next.ServeHTTP(inner, r)
			if inner.Header().Get("Idempotency-Replayed") != "" {
				inner.Code = http.StatusOK
			}
			forward(w, inner)
		})
	}},
	// Known from erleans/pgo#131 (a COMMIT that was a ROLLBACK, reported as success).
	{name: "the answer is sent before the commit", breaks: "answer-after-commit", make: func(t testing.TB, pool *pgxpool.Pool) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			r.Body = io.NopCloser(bytes.NewReader(body))
			scope, _ := byTenant(r)
			said := false
			res, err := idem.Do(r.Context(), pool, scope, r.Header.Get("Idempotency-Key"), idem.HashBytes(body), func(tx pgx.Tx) (idem.Response, error) {
				if _, err := place(r, tx); err != nil {
					return idem.Response{}, err
				}
				said = true
				w.WriteHeader(http.StatusCreated)
				return idem.Response{Status: http.StatusCreated}, nil
			}, idem.WithRetries(0))
			switch {
			case said:
			case err != nil:
				http.Error(w, "", errorStatus(err))
			default:
				w.WriteHeader(res.Status)
			}
		})
	}},
	{name: "principals share one execution of a key", breaks: "own-scope", make: func(t testing.TB, pool *pgxpool.Pool) http.Handler {
		return oneFlight(good(t, pool))
	}},
	{name: "scope is X-Real-IP", breaks: "one-key", make: scoped(func(r *http.Request) string {
		return idem.Scope(r.Header.Get("Authorization"), r.Header.Get("X-Real-IP"))
	})},
	{name: "fingerprint contains the content length", breaks: "same-fingerprint", make: fingerprinted(func(r *http.Request, body []byte) idem.Hash {
		return idem.HashBytes(body, fmt.Append(nil, r.ContentLength))
	})},
	{name: "fingerprint contains the accepted encoding", breaks: "same-fingerprint", make: fingerprinted(func(r *http.Request, body []byte) idem.Hash {
		return idem.HashBytes(body, []byte(r.Header.Get("Accept-Encoding")))
	})},
	{name: "an id in a field that is not recorded", breaks: "same-answer", make: func(t testing.TB, pool *pgxpool.Pool) http.Handler {
		return wrapped(t, pool, idemhttp.Config{RecordHeader: []string{"Content-Type", "Location"}}, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Order-Id", "7")
			throughTx(w, r)
		})
	}},
	{name: "all keys that are no UUID count as one", breaks: "every-key", make: rekeyed(func(r *http.Request) string {
		var id pgtype.UUID
		_ = id.Scan(r.Header.Get("Idempotency-Key"))
		return fmt.Sprintf("%x", id.Bytes)
	})},
	{name: "an unknown outcome is answered with success", breaks: "answer-after-commit", make: configured(idemhttp.Config{Render: func(w http.ResponseWriter, r *http.Request, p *idemhttp.Problem) {
		if p.Type == idemhttp.TypeOutcomeUnknown {
			w.WriteHeader(http.StatusCreated)
			return
		}
		http.Error(w, p.Title, p.Status)
	}})},
	{name: "commits in SQL", breaks: "transaction-kept", make: endsBy("COMMIT")},
	{name: "rolls back in SQL", breaks: "transaction-kept", make: endsBy("ROLLBACK")},
	{name: "ignores a statement that fails", breaks: "errors-returned", make: endsBy("INSERT INTO statistics VALUES (1)")},
	// Known from go-resty/resty#47.
	{name: "each Request has another key", breaks: "same-request", make: good, change: func(s *idemtest.HandlerSuite) {
		s.Request = func() *http.Request {
			r := order("ada", "teapot")
			r.Header.Set("Idempotency-Key", rand.Text())
			return r
		}
	}},
	{name: "Effects counts nothing", breaks: "has-effect", make: good, change: func(s *idemtest.HandlerSuite) {
		s.Effects = func(context.Context, *pgxpool.Pool) (int, error) { return 0, nil }
	}},
	{name: "Request is refused", breaks: "first-answer", make: good, change: func(s *idemtest.HandlerSuite) {
		s.Request = func() *http.Request {
			r := order("ada", "teapot")
			r.Header.Del("Idempotency-Key")
			return r
		}
	}},
}

// endsBy places an order, and then runs a statement whose error it ignores.
func endsBy(sql string) shop {
	return wrapping(func(w http.ResponseWriter, r *http.Request) {
		throughTx(w, r)
		idemhttp.Tx(r.Context()).Exec(r.Context(), sql)
	})
}

// oneFlight lets simultaneous requests with the same key share an answer.
func oneFlight(next http.Handler) http.Handler {
	type flight struct {
		done   chan struct{}
		answer *httptest.ResponseRecorder
	}
	var mu sync.Mutex
	flights := map[string]*flight{}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := r.Header.Get("Idempotency-Key")
		mu.Lock()
		f, under := flights[key]
		if !under {
			f = &flight{make(chan struct{}), httptest.NewRecorder()}
			flights[key] = f
		}
		mu.Unlock()
		if !under {
			defer func() {
				mu.Lock()
				delete(flights, key)
				mu.Unlock()
				close(f.done)
			}()
			next.ServeHTTP(f.answer, r)
		} else {
			<-f.done
		}
		forward(w, f.answer)
	})
}
