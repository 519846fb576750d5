package bad

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc"
	pb "google.golang.org/grpc/interop/grpc_testing"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/operation"
)

func keepsTheKeyToItself(b bank) *operation.Definition[string] {
	return operation.Define("keeps", func(op *operation.Op, account string) (idem.Response, error) {
		_, err := operation.Call(op, "charge", operation.Keyed(time.Hour), func(ctx context.Context, _ string) (string, error) { // want idemkey
			return b.Charge(ctx, account, 700)
		})
		return created, err
	})
}

var postsWithoutTheKey = operation.Define("posts", func(op *operation.Op, account string) (idem.Response, error) {
	keyed := operation.Keyed(23 * time.Hour).WithAttemptTimeout(time.Minute)
	_, err := operation.Call(op, "charge", keyed, func(ctx context.Context, key string) (string, error) { // want idemkey
		slog.InfoContext(ctx, "charges", "key", key)
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://bank.example/charges", strings.NewReader(account))
		if err != nil {
			return "", operation.Final(operation.NotSent(err))
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return "", err
		}
		return resp.Status, resp.Body.Close()
	})
	return created, err
})

var goesWithoutTheKey = operation.Define("goes", func(op *operation.Op, accounts []string) (idem.Response, error) {
	calls := operation.Parallel(op)
	for _, account := range accounts {
		operation.Go(calls, account, operation.Keyed(time.Hour), func(context.Context, string) (string, error) { // want idemkey
			resp, err := http.Post("https://bank.example/charges", "text/plain", strings.NewReader(account))
			if err != nil {
				return "", err
			}
			return resp.Status, resp.Body.Close()
		})
	}
	return created, calls.Wait()
})

func invokesWithoutTheKey(conn grpc.ClientConnInterface, client pb.TestServiceClient) *operation.Definition[string] {
	return operation.Define("invokes", func(op *operation.Op, account string) (idem.Response, error) {
		_, err := operation.Call(op, "charge", operation.Keyed(time.Hour), func(ctx context.Context, key string) (*pb.SimpleResponse, error) { // want idemkey
			_ = key
			return client.UnaryCall(ctx, &pb.SimpleRequest{})
		})
		return created, err
	})
}

var losesTheKeyInAHelper = operation.Define("loses", func(op *operation.Op, account string) (idem.Response, error) {
	_, err := operation.Call(op, "charge", operation.Keyed(time.Hour), func(ctx context.Context, key string) (string, error) { // want idemkey
		return chargeAccount(ctx, key, account)
	})
	return created, err
})

func chargeAccount(ctx context.Context, key, account string) (string, error) {
	resp, err := http.PostForm("https://bank.example/charges", map[string][]string{"account": {account}})
	if err != nil {
		return "", err
	}
	return resp.Status, resp.Body.Close()
}

func refundsWithoutTheKey(b bank) operation.Undo[string] {
	return operation.UndoCall(operation.Keyed(time.Hour), func(ctx context.Context, _, account string) error { // want idemkey
		_, err := b.Charge(ctx, account, -700)
		return err
	})
}

var givesAFunctionWithoutTheKey = operation.Define("gives", func(op *operation.Op, account string) (idem.Response, error) {
	_, err := operation.Call(op, "charge", operation.Keyed(time.Hour), chargeWithoutTheKey) // want idemkey
	return created, err
})

func chargeWithoutTheKey(ctx context.Context, _ string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, "POST", "https://bank.example/charges", nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	return resp.Status, resp.Body.Close()
}

var newKeyInAKeyedCall = operation.Define("new key", func(op *operation.Op, account string) (idem.Response, error) {
	_, err := operation.Call(op, "charge", operation.Keyed(time.Hour), func(ctx context.Context, key string) (string, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://bank.example/charges", strings.NewReader(account))
		if err != nil {
			return "", operation.Final(operation.NotSent(err))
		}
		req.Header.Set("Idempotency-Key", uuid.NewString()) // want idemkey
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return "", err
		}
		return resp.Status, resp.Body.Close()
	})
	return created, err
})
