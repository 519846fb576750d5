package bad

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/operation"
)

func finalOfTheClient(client *http.Client, req *http.Request) (string, error) {
	resp, err := client.Do(req)
	if err != nil {
		return "", operation.Final(err) // want idemfinal
	}
	return resp.Status, resp.Body.Close()
}

var finalThatIsWrapped = operation.Define("wrapped", func(op *operation.Op, in string) (idem.Response, error) {
	_, err := operation.Call(op, "charge", operation.Keyed(time.Hour), func(ctx context.Context, key string) (string, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://bank.example/charges", nil)
		if err != nil {
			return "", operation.Final(operation.NotSent(err))
		}
		req.Header.Set("Idempotency-Key", key)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return "", operation.Final(fmt.Errorf("charge: %w", err)) // want idemfinal
		}
		return resp.Status, resp.Body.Close()
	})
	return created, err
})

func finalOfTheDeadline(ctx context.Context, b bank, account string) (string, error) {
	id, err := b.Charge(ctx, account, 700)
	if errors.Is(err, context.DeadlineExceeded) {
		return "", operation.Final(err) // want idemfinal
	}
	return id, err
}

func finalOfTheContext(ctx context.Context, answers <-chan string) (string, error) {
	select {
	case answer := <-answers:
		return answer, nil
	case <-ctx.Done():
		return "", operation.Final(ctx.Err()) // want idemfinal
	}
}

func finalOfAURLError(ctx context.Context, b bank, account string) (string, error) {
	id, err := b.Charge(ctx, account, 700)
	var failed *url.Error
	if errors.As(err, &failed) {
		return "", operation.Final(fmt.Errorf("charge: %w", failed)) // want idemfinal
	}
	return id, err
}

func finalOfANetError(ctx context.Context, b bank, account string) (string, error) {
	id, err := b.Charge(ctx, account, 700)
	var failed net.Error
	if errors.As(err, &failed) && failed.Timeout() {
		return "", operation.Final(err) // want idemfinal
	}
	return id, err
}

func finalOfAnAssertion(ctx context.Context, b bank, account string) (string, error) {
	id, err := b.Charge(ctx, account, 700)
	if _, ok := err.(net.Error); ok {
		return "", operation.Final(err) // want idemfinal
	}
	if os.IsTimeout(err) {
		return "", operation.Final(errors.Join(errors.New("no answer"), err)) // want idemfinal
	}
	return id, err
}

func finalOfASwitch(ctx context.Context, b bank, account string) (string, error) {
	id, err := b.Charge(ctx, account, 700)
	switch err := err.(type) {
	case *net.OpError:
		return "", operation.Final(err) // want idemfinal
	}
	return id, err
}

func finalOfTheBody(resp *http.Response) ([]byte, error) {
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, operation.Final(err) // want idemfinal
	}
	return body, nil
}

func finalOfTheNamedDeadline() error {
	return operation.Final(fmt.Errorf("the bank: %w", context.DeadlineExceeded)) // want idemfinal
}

func finalOfAPost() error {
	if _, err := http.Post("https://bank.example/charges", "", nil); err != nil {
		failed := fmt.Errorf("charge: %w", err)
		return operation.Final(failed) // want idemfinal
	}
	return nil
}

func finalOfAHelper(client *http.Client, req *http.Request) error {
	resp, err := send(client, req)
	if err != nil {
		return operation.Final(err) // want idemfinal
	}
	return resp.Body.Close()
}

func send(client *http.Client, req *http.Request) (*http.Response, error) {
	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("charge: %w", err)
	}
	return resp, nil
}

func finalOfAComparison(ctx context.Context, b bank, account string) (string, error) {
	id, err := b.Charge(ctx, account, 700)
	if err == context.DeadlineExceeded {
		return "", operation.Final(err) // want idemfinal
	}
	if failed, ok := errors.AsType[net.Error](err); ok && failed.Timeout() {
		return "", operation.Final(fmt.Errorf("charge: %w", err)) // want idemfinal
	}
	return id, err
}
