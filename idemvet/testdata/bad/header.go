package bad

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/idem-go/idem/idemclient"
)

func newKeyInTheHeaderMap(client *http.Client, req *http.Request) error {
	for range 3 {
		req.Header["Idempotency-Key"] = []string{uuid.NewString()} // want idemkey
		if resp, err := client.Do(req); err == nil {
			return resp.Body.Close()
		}
	}
	return nil
}

func newHeaderForEachAttempt(ctx context.Context, client *http.Client) (err error) {
	for attempt := 0; attempt < 5; attempt++ {
		var resp *http.Response
		req := (&http.Request{Method: http.MethodPost, Header: http.Header{
			"Content-Type":    {"application/json"},
			"Idempotency-Key": {idemclient.NewKey()}, // want idemkey
		}}).WithContext(ctx)
		if resp, err = client.Do(req); err != nil {
			continue
		}
		return resp.Body.Close()
	}
	return err
}

func newKeyAppended(client *http.Client, req *http.Request) {
	const header = "Idempotency-Key"
	for ok := false; !ok; {
		key := uuid.New().String()
		req.Header[header] = append(req.Header[header][:0], key) // want idemkey
		resp, err := client.Do(req)
		ok = err == nil && resp.Body.Close() == nil
	}
}

func newKeyForEachDelay(ctx context.Context, send func(context.Context) error) error {
	var err error
	for _, delay := range []time.Duration{0, time.Second, time.Minute} {
		time.Sleep(delay)
		if err = send(idemclient.WithKey(ctx, idemclient.NewKey())); err == nil { // want idemkey
			break
		}
	}
	return err
}

func newKeyInAClosure(client *http.Client, req *http.Request) error {
	try := func() error {
		req.Header.Set("Idempotency-Key", uuid.NewString()) // want idemkey
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		return resp.Body.Close()
	}
	for {
		if err := try(); err == nil {
			return nil
		}
		time.Sleep(time.Second)
	}
}

func (s *service) newKeyInAMethod(req *http.Request) (err error) {
	for range 3 {
		if err = s.sendOnce(req); err == nil {
			return nil
		}
	}
	return err
}

func (s *service) sendOnce(req *http.Request) error {
	req.Header["Idempotency-Key"] = []string{uuid.NewString()} // want idemkey
	resp, err := s.client.Do(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

func timeInTheHeaderMap(client *http.Client, req *http.Request) (*http.Response, error) {
	req.Header["Idempotency-Key"] = []string{strconv.FormatInt(time.Now().UnixMicro(), 10)} // want idemkey
	return client.Do(req)
}

func newKeyUnderTheNameOfABank(client *http.Client, req *http.Request) (resp *http.Response, err error) {
	for err = http.ErrHandlerTimeout; err != nil; {
		req.Header.Set("Cko-Idempotency-Key", uuid.NewString()) // want idemkey
		resp, err = client.Do(req)
	}
	return resp, err
}
