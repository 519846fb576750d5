package good

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/idemclient"
)

func oneKeyInTheHeaderMap(client *http.Client, req *http.Request) error {
	req.Header["Idempotency-Key"] = []string{uuid.NewString()}
	for range 3 {
		if resp, err := client.Do(req); err == nil {
			return resp.Body.Close()
		}
	}
	return nil
}

func oneKeySetAgain(client *http.Client, req *http.Request) error {
	key := []string{uuid.NewString()}
	for attempt := range 3 {
		req.Header["Idempotency-Key"] = key
		req.Header["X-Request-Id"] = []string{uuid.NewString()}
		req.Header.Set("X-Attempt", fmt.Sprint(attempt))
		if resp, err := client.Do(req); err == nil {
			return resp.Body.Close()
		}
	}
	return nil
}

func oneKeyForEachLine(client *http.Client, req *http.Request, lines *bufio.Scanner) error {
	for lines.Scan() {
		next := req.Clone(req.Context())
		next.Header["Idempotency-Key"] = []string{uuid.NewString()}
		resp, err := client.Do(next)
		if err != nil {
			return err
		}
		_ = resp.Body.Close()
	}
	return lines.Err()
}

func oneKeyForEachRow(ctx context.Context, rows pgx.Rows, send func(context.Context, string) error) error {
	for rows.Next() {
		var order string
		if err := rows.Scan(&order); err != nil {
			return err
		}
		if err := send(idemclient.WithKey(ctx, idemclient.NewKey()), order); err != nil {
			return err
		}
	}
	return rows.Err()
}

func oneKeyForEachIndex(ctx context.Context, orders []string, send func(context.Context, string) error) error {
	for i := 0; i < len(orders); i++ {
		if err := send(idemclient.WithKey(ctx, uuid.NewString()), orders[i]); err != nil {
			return err
		}
	}
	return nil
}

func oneKeyForEachMessage(ctx context.Context, orders <-chan string, send func(context.Context, string) error) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case order := <-orders:
			if err := send(idemclient.WithKey(ctx, uuid.NewString()), order); err != nil {
				return err
			}
		}
	}
}

func oneKeyForEachOfMany(client *http.Client, req *http.Request, n int) error {
	for range n {
		next := req.Clone(req.Context())
		next.Header = http.Header{"Idempotency-Key": {uuid.NewString()}}
		resp, err := client.Do(next)
		if err != nil {
			return err
		}
		if resp.StatusCode >= http.StatusBadRequest {
			return fmt.Errorf("the bank answers %s", resp.Status)
		}
		_ = resp.Body.Close()
	}
	return nil
}

func (s *service) oneKeyForEachTick(ctx context.Context, req *http.Request) {
	ticker := time.NewTicker(time.Hour)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			s.report(req.Clone(ctx))
		}
	}
}

func (s *service) report(req *http.Request) {
	req.Header.Set("Idempotency-Key", uuid.NewString())
	for range 3 {
		if resp, err := s.client.Do(req); err == nil {
			_ = resp.Body.Close()
			return
		}
	}
}

func oneKeyInAClosure(ctx context.Context, send func(context.Context, string) error, orders []string) error {
	key := idemclient.NewKey()
	try := func(order string) error { return send(idemclient.WithKey(ctx, key+order), order) }
	for range 3 {
		if err := try(orders[0]); err == nil {
			return nil
		}
	}
	return try(orders[0])
}

func oneKeyForEachPage(ctx context.Context, pages func(int) []string, send func(context.Context, string) error) error {
	for page := 0; ; page++ {
		orders := pages(page)
		for _, order := range orders {
			if err := send(idemclient.WithKey(ctx, uuid.NewString()), order); err != nil {
				return err
			}
		}
		if len(orders) == 0 {
			return nil
		}
	}
}

func oneKeyForEachUntilTheLast(ctx context.Context, next func() (string, bool), send func(context.Context, string) error) error {
	for {
		order, more := next()
		if err := send(idemclient.WithKey(ctx, uuid.NewString()), order); err != nil {
			return err
		}
		if !more {
			return nil
		}
	}
}
