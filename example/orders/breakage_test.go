package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/outbox"
)

// breakage is a way to get retries wrong. It changes what the real service is asked, or what it tells others, or its tables.
type breakage struct {
	make     func(context.Context, *pgxpool.Pool, http.Handler) (http.Handler, error)
	payments http.RoundTripper // between service and bank
	publish  func(outbox.Publisher) outbox.Publisher
	shows    []string // acts of the demo in which it has to
}

var breakages = map[string]breakage{
	"a new key for each attempt": {make: newKeys, shows: []string{
		"50 duplicates", "an answer lost", "another amount", "kill -9 after", "out of stock"}},
	"answers in memory":                 {make: inMemory, shows: []string{"50 duplicates", "kill -9 after"}},
	"the first body counts":             {make: firstBody, shows: []string{"another amount"}},
	"a lease":                           {make: lease, shows: []string{"kill -9 inside"}},
	"a no is not final":                 {make: forgetfulNo, shows: []string{"out of stock"}},
	"the ledger misses entries":         {make: leakyLedger, shows: []string{"50 duplicates", "an answer lost"}},
	"the stock loses more than is sold": {make: leakyStock, shows: []string{"50 duplicates", "an answer lost"}},
	"the entry is booked afterwards":    {make: lateLedger, shows: []string{"50 duplicates", "an answer lost"}},
	"a new key for each call to the bank": {payments: newBankKeys{}, shows: []string{
		"the bank charges", "kill -9 in the charge", "kill -9 of the bank"}},
	"a new id whenever a message is published": {publish: newIDs, shows: []string{"relay that has published"}},
	"messages have lost their key":             {publish: noKeys, shows: []string{"fits into no parcel"}},
	"the stock is not given back":              {make: keptStock, shows: []string{"the card is declined"}},
	"a bank without an answer has said no":     {payments: hastyNo{}, shows: []string{"the bank charges", "kill -9 of the bank"}},
}

func renewKey(r *http.Request) { r.Header.Set("Idempotency-Key", rand.Text()) }

func newKeys(_ context.Context, _ *pgxpool.Pool, next http.Handler) (http.Handler, error) {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		renewKey(r)
		next.ServeHTTP(w, r)
	}), nil
}

// inMemory keeps answers where neither another instance nor the next process finds them.
func inMemory(_ context.Context, _ *pgxpool.Pool, next http.Handler) (http.Handler, error) {
	var mu sync.Mutex
	answers := map[string]*httptest.ResponseRecorder{}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		key := r.Header.Get("Idempotency-Key")
		answer, replayed := answers[key]
		if !replayed {
			answer = httptest.NewRecorder()
			renewKey(r)
			next.ServeHTTP(answer, r)
			answers[key] = answer
		} else {
			w.Header().Set("Idempotency-Replayed", "true")
		}
		w.Header().Set("Location", answer.Header().Get("Location"))
		w.WriteHeader(answer.Code)
		w.Write(answer.Body.Bytes())
	}), nil
}

// firstBody does not look at what a key is used for.
func firstBody(_ context.Context, _ *pgxpool.Pool, next http.Handler) (http.Handler, error) {
	var bodies sync.Map
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		first, _ := bodies.LoadOrStore(r.Header.Get("Idempotency-Key"), body)
		r.Body = io.NopCloser(bytes.NewReader(first.([]byte)))
		next.ServeHTTP(w, r)
	}), nil
}

// lease commits "in progress" before the order, and does not see that the process behind it is dead.
func lease(ctx context.Context, pool *pgxpool.Pool, next http.Handler) (http.Handler, error) {
	_, err := pool.Exec(ctx, `CREATE TABLE IF NOT EXISTS leases (key text PRIMARY KEY, done boolean NOT NULL DEFAULT false)`)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, key := r.Context(), r.Header.Get("Idempotency-Key")
		claim, _ := pool.Exec(ctx, `INSERT INTO leases VALUES ($1) ON CONFLICT DO NOTHING`, key)
		done := claim.RowsAffected() == 1
		for patience := time.Now().Add(2 * time.Second); !done; time.Sleep(5 * time.Millisecond) {
			pool.QueryRow(ctx, `SELECT done FROM leases WHERE key = $1`, key).Scan(&done)
			if time.Now().After(patience) {
				w.WriteHeader(http.StatusConflict)
				return
			}
		}
		next.ServeHTTP(w, r)
		pool.Exec(ctx, `UPDATE leases SET done = true WHERE key = $1`, key)
	}), err
}

// forgetfulNo takes every question after a samovar for a new one.
func forgetfulNo(_ context.Context, _ *pgxpool.Pool, next http.Handler) (http.Handler, error) {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		if bytes.Contains(body, []byte("samovar")) {
			renewKey(r)
		}
		next.ServeHTTP(w, r)
	}), nil
}

func leakyLedger(ctx context.Context, pool *pgxpool.Pool, next http.Handler) (http.Handler, error) {
	_, err := pool.Exec(ctx, `CREATE OR REPLACE RULE leak AS ON INSERT TO ledger DO INSTEAD NOTHING`)
	return next, err
}

// leakyStock takes one more than was ordered.
func leakyStock(ctx context.Context, pool *pgxpool.Pool, next http.Handler) (http.Handler, error) {
	_, err := pool.Exec(ctx, `
		CREATE OR REPLACE FUNCTION leak() RETURNS trigger LANGUAGE plpgsql
		AS $$ BEGIN NEW.quantity := NEW.quantity - 1; RETURN NEW; END $$;
		CREATE OR REPLACE TRIGGER leak BEFORE UPDATE ON stock FOR EACH ROW EXECUTE FUNCTION leak()`)
	return next, err
}

// lateLedger writes each entry in a transaction of its own. Nothing but a crash in between would show it, or a look at who
// wrote which row.
func lateLedger(_ context.Context, pool *pgxpool.Pool, next http.Handler) (http.Handler, error) {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r)
		pool.Exec(r.Context(), `UPDATE ledger SET booked_at = clock_timestamp()`)
	}), nil
}

// newBankKeys asks the bank under another key each time.
type newBankKeys struct{}

func (newBankKeys) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	renewKey(r)
	return http.DefaultTransport.RoundTrip(r)
}

// hastyNo takes silence for a no.
type hastyNo struct{}

func (hastyNo) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		return &http.Response{StatusCode: http.StatusPaymentRequired, Body: http.NoBody}, nil
	}
	return response, nil
}

// keptStock has a stock to which nothing is ever given back.
func keptStock(ctx context.Context, pool *pgxpool.Pool, next http.Handler) (http.Handler, error) {
	_, err := pool.Exec(ctx, `
		CREATE OR REPLACE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
		CREATE OR REPLACE TRIGGER keep BEFORE UPDATE ON stock FOR EACH ROW WHEN (NEW.quantity > OLD.quantity) EXECUTE FUNCTION keep()`)
	return next, err
}

func newIDs(next outbox.Publisher) outbox.Publisher {
	return changed(next, func(m *outbox.Message) { m.ID = outbox.NewID() })
}

// noKeys has no order.
func noKeys(next outbox.Publisher) outbox.Publisher {
	return changed(next, func(m *outbox.Message) { m.Key = "" })
}

func changed(next outbox.Publisher, change func(*outbox.Message)) outbox.Publisher {
	return outbox.PublisherFunc(func(ctx context.Context, messages []outbox.Message) error {
		messages = slices.Clone(messages)
		for i := range messages {
			change(&messages[i])
		}
		return next.Publish(ctx, messages)
	})
}
