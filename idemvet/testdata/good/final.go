package good

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"

	"github.com/idem-go/idem/operation"
)

var errDeclined = errors.New("the card is declined")

func finalOfTheAnswer(client *http.Client, req *http.Request) (string, error) {
	resp, err := client.Do(req)
	if err != nil {
		return "", operation.Unknown(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusPaymentRequired {
		return "", operation.Final(fmt.Errorf("%w: %s", errDeclined, resp.Status))
	}
	return resp.Status, nil
}

func finalThatWasNotSent(ctx context.Context, account string) (*http.Request, error) {
	at, err := url.Parse("https://bank.example/" + account)
	if err != nil {
		return nil, operation.Final(operation.NotSent(err))
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, at.String(), nil)
	if err != nil {
		return nil, operation.Final(operation.NotSent(fmt.Errorf("charge: %w", err)))
	}
	return req, nil
}

func finalOfAnotherError(client *http.Client, req *http.Request) (string, error) {
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	var refused struct{ Code string }
	if err = json.NewDecoder(resp.Body).Decode(&refused); err != nil {
		return "", operation.Unknown(err)
	}
	if err = refusal(refused.Code); err != nil {
		return "", operation.Final(err)
	}
	return resp.Status, nil
}

func refusal(code string) error {
	if code == "" {
		return nil
	}
	return errors.New(code)
}

func finalOfWhatIsNoTimeout(ctx context.Context, b bank, account string) (string, error) {
	id, err := b.Book(ctx, account)
	if err != nil && !errors.Is(err, context.DeadlineExceeded) && errors.Is(err, errDeclined) {
		return "", operation.Final(err)
	}
	return id, err
}

func finalOfTheElse(ctx context.Context, b bank, account string) (string, error) {
	id, err := b.Book(ctx, account)
	var failed net.Error
	switch {
	case errors.As(err, &failed), errors.Is(err, context.Canceled):
		return "", operation.Unknown(err)
	case errors.Is(err, errDeclined):
		return "", operation.Final(err)
	}
	if ctx.Err() == nil && errors.Is(err, http.ErrNotSupported) {
		return "", operation.Final(errDeclined)
	} else if ctx.Err() != nil {
		return "", ctx.Err()
	}
	return id, err
}

// limited refuses requests before it sends them.
type limited struct{ http.RoundTripper }

var errLimited = errors.New("the limit is reached")

func finalOfItsOwnTransport(client *http.Client, req *http.Request) (string, error) {
	client.Transport = limited{client.Transport}
	resp, err := client.Do(req)
	if errors.Is(err, errLimited) {
		return "", operation.Final(err)
	}
	if err != nil {
		return "", operation.Unknown(err)
	}
	return resp.Status, resp.Body.Close()
}

func finalOfAnotherOperation(op *operation.Op, b bank) error {
	_, err := operation.Call(op, "book", operation.Once, func(ctx context.Context, _ string) (string, error) { return b.Book(ctx, "teapot") })
	if err != nil {
		return operation.Final(err)
	}
	return nil
}

func finalInTheElse(client *http.Client, req *http.Request, declined bool) error {
	resp, err := client.Do(req)
	if err == nil {
		err = resp.Body.Close()
	}
	if declined {
		err = errDeclined
	}
	return operation.Final(err)
}

func finalOfAnAnswerOfAHelper(client *http.Client, req *http.Request) error {
	_, err := sendOnce(client, req)
	if _, ok := errors.AsType[net.Error](err); !ok && errors.Is(err, errDeclined) {
		return operation.Final(err)
	}
	return err
}

func sendOnce(client *http.Client, req *http.Request) (*http.Response, error) {
	resp, err := client.Do(req)
	if err != nil {
		return nil, operation.Unknown(err)
	}
	if resp.StatusCode == http.StatusPaymentRequired {
		return resp, errDeclined
	}
	return resp, resp.Body.Close()
}

func finalOfTheOneAnswer(client *http.Client, req *http.Request) error {
	if _, err := sendOnce(client, req); err != nil {
		return operation.Final(err)
	}
	return nil
}

var errPackage = errors.New("declined")

// The argument is a variable of the package.
var errPackageFinal = operation.Final(errPackage)
