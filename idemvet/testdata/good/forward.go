package good

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemclient"
	"github.com/idem-go/idem/operation"
)

type bank interface {
	Charge(ctx context.Context, key, account string) (string, error)
	Book(ctx context.Context, account string) (string, error)
	GetBalance(ctx context.Context, account string) (string, error)
}

func forwardsTheKey(b bank) *operation.Definition[string] {
	return operation.Define("forwards", func(op *operation.Op, account string) (idem.Response, error) {
		_, err := operation.Call(op, "charge", operation.Keyed(time.Hour), func(ctx context.Context, key string) (string, error) {
			return b.Charge(ctx, key, account)
		})
		return created, err
	})
}

func forwardsItInTheContext(b bank) *operation.Definition[string] {
	return operation.Define("context", func(op *operation.Op, account string) (idem.Response, error) {
		_, err := operation.Call(op, "charge", operation.Keyed(time.Hour), func(ctx context.Context, key string) (string, error) {
			return b.Book(idemclient.WithKey(ctx, key), account)
		})
		return created, err
	})
}

var forwardsAUUIDOfIt = operation.Define("uuid", func(op *operation.Op, account string) (idem.Response, error) {
	_, err := operation.Call(op, "charge", operation.Keyed(time.Hour), func(ctx context.Context, key string) (string, error) {
		return postCharge(ctx, account, uuid.NewSHA1(uuid.NameSpaceOID, []byte(key)).String())
	})
	return created, err
})

func postCharge(ctx context.Context, account, reference string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://bank.example/charges", strings.NewReader(account+reference))
	if err != nil {
		return "", operation.Final(operation.NotSent(err))
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", operation.Unknown(err)
	}
	return resp.Status, resp.Body.Close()
}

func callsOnce(b bank) *operation.Definition[string] {
	return operation.Define("once", func(op *operation.Op, account string) (idem.Response, error) {
		_, err := operation.Call(op, "book", operation.Once, func(ctx context.Context, _ string) (string, error) {
			return b.Book(ctx, account)
		})
		return created, err
	})
}

func asksByTheAccount(b bank) *operation.Definition[string] {
	return operation.Define("asked", func(op *operation.Op, account string) (idem.Response, error) {
		asked := operation.Asked(func(ctx context.Context, _ string) (string, bool, error) {
			balance, err := b.GetBalance(ctx, account)
			return balance, balance != "", err
		})
		_, err := operation.Call(op, "book", asked, func(ctx context.Context, _ string) (string, error) { return b.Book(ctx, account) })
		return created, err
	})
}

func readsABalance(b bank) *operation.Definition[string] {
	return operation.Define("reads", func(op *operation.Op, account string) (idem.Response, error) {
		_, err := operation.Call(op, "balance", operation.Keyed(time.Hour), func(ctx context.Context, _ string) (string, error) {
			return b.GetBalance(ctx, account)
		})
		return created, err
	})
}

func hasAKeyOfTheOperation(b bank) *operation.Definition[string] {
	return operation.Define("key of the operation", func(op *operation.Op, account string) (idem.Response, error) {
		_, err := operation.Call(op, "charge", operation.Keyed(time.Hour), func(ctx context.Context, _ string) (string, error) {
			return b.Charge(ctx, op.ID()+"/charge", account)
		})
		return created, err
	})
}

var putsUnderAName = operation.Define("puts", func(op *operation.Op, account string) (idem.Response, error) {
	_, err := operation.Call(op, "put", operation.Keyed(time.Hour), func(ctx context.Context, _ string) (string, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodPut, "https://bank.example/accounts/"+account, nil)
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

func forwardsInABranch(b bank, charges bool) operation.Undo[string] {
	return operation.UndoCall(operation.Keyed(time.Hour), func(ctx context.Context, key, account string) error {
		if !charges {
			return nil
		}
		_, err := b.Charge(ctx, key, account)
		return err
	})
}
