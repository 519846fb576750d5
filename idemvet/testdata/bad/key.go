package bad

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemclient"
	"github.com/idem-go/idem/operation"
)

func newKeyForEachAttempt(ctx context.Context, client *http.Client) error {
	for range 3 {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://bank.example/charges", strings.NewReader("{}"))
		if err != nil {
			return err
		}
		req.Header.Set("Idempotency-Key", uuid.NewString()) // want idemkey
		if resp, err := client.Do(req); err == nil {
			return resp.Body.Close()
		}
	}
	return nil
}

func newKeyInAWhile(ctx context.Context, client *http.Client, req *http.Request) {
	for attempt := 0; attempt < 5; attempt++ {
		key := fmt.Sprintf("charge-%s", rand.Text())
		req.Header.Add("idempotency-key", key) // want idemkey
		if resp, err := client.Do(req.WithContext(ctx)); err == nil {
			_ = resp.Body.Close()
			return
		}
	}
}

func newKeyInTheFunctionThatIsRetried(ctx context.Context, send func(context.Context) error) error {
	_, err := backoff.Retry(ctx, func() (bool, error) {
		return true, send(idemclient.WithKey(ctx, uuid.New().String())) // want idemkey
	})
	return err
}

func newKeyForEachTry(ctx context.Context, send func(context.Context) error) (err error) {
	for try := range 4 {
		order := struct{ key string }{key: idemclient.NewKey()}
		if err = send(idemclient.WithKey(ctx, order.key)); err == nil { // want idemkey
			return nil
		}
		time.Sleep(time.Duration(try) * time.Second)
	}
	return err
}

func keyOfTheTime(ctx context.Context, send func(context.Context) error, user string) error {
	key := user + "-" + strconv.FormatInt(time.Now().UnixNano(), 10)
	return send(idemclient.WithKey(ctx, key)) // want idemkey
}

func (s *service) keyMadeByTheServer(ctx context.Context, scope string, hash idem.Hash) error {
	_, err := idem.Do(ctx, s.pool, scope, uuid.NewString(), hash, func(tx pgx.Tx) (idem.Response, error) { // want idemkey
		_, err := tx.Exec(ctx, "INSERT INTO orders DEFAULT VALUES")
		return created, err
	})
	return err
}

func (s *service) keyOfTheTimeInTheServer(ctx context.Context, scope, user string, hash idem.Hash) error {
	key := fmt.Sprintf("%s/%d", user, time.Now().Unix())
	_, err := idem.Do(ctx, s.pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) { // want idemkey
		_, err := tx.Exec(ctx, "INSERT INTO orders DEFAULT VALUES")
		return created, err
	})
	return err
}

func (s *service) operationOfTheTime(ctx context.Context, d *operation.Definition[string], hash idem.Hash) error {
	_, err := d.Do(ctx, s.pool, "orders", time.Now().String(), hash, "teapot") // want idemkey
	return err
}

func (s *service) newKeyThatIsOnlyLogged(ctx context.Context, scope string, hash idem.Hash) (idem.Result, error) {
	key := uuid.NewString()
	slog.InfoContext(ctx, "places", "key", key)
	ctx = context.WithValue(ctx, "key", key)
	return idem.Do(ctx, s.pool, scope, key, hash, func(pgx.Tx) (idem.Response, error) { return created, nil }) // want idemkey
}

func (s *service) newKeyThatIsStoredTooLate(ctx context.Context, scope string, hash idem.Hash) error {
	key := uuid.NewString()
	if _, err := idem.Do(ctx, s.pool, scope, key, hash, func(pgx.Tx) (idem.Response, error) { return created, nil }); err != nil { // want idemkey
		return err
	}
	_, err := s.pool.Exec(ctx, "INSERT INTO intents (key) VALUES ($1)", key)
	return err
}

func (s *service) keyOfBytesByTheServer(ctx context.Context, scope string, hash idem.Hash) (idem.Result, error) {
	var b [16]byte
	rand.Read(b[:])
	return idem.Do(ctx, s.pool, scope, hex.EncodeToString(b[:]), hash, func(pgx.Tx) (idem.Response, error) { return created, nil }) // want idemkey
}
