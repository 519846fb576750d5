package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/idem-go/idem/example/orders/bank"
	"github.com/idem-go/idem/operation"
)

// payments is the bank, as this service reaches it.
type payments struct {
	url  string
	http *http.Client
}

// paymentLimit is how long the bank may take to answer. After that nobody knows, and it is asked again.
const paymentLimit = 30 * time.Second

func newPayments(url string) *payments {
	return &payments{url, &http.Client{Timeout: paymentLimit}}
}

var errDeclined = errors.New("the card is declined")

// charge returns the id of the charge. It says one of three things: done, declined for good, or nobody knows. Whatever is not
// clearly one of the first two is the third, and then the call is made again with the same key.
func (p *payments) charge(ctx context.Context, key string, c bank.Charge) (id string, err error) {
	body, err := json.Marshal(c)
	if err != nil {
		return "", operation.Final(err) // it was not sent
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url+"/charges", bytes.NewReader(body))
	if err != nil {
		return "", operation.Final(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", key)
	response, err := p.http.Do(r)
	if err != nil {
		return "", operation.Unknown(err) // no answer
	}
	defer response.Body.Close()
	switch response.StatusCode {
	case http.StatusCreated:
		var made bank.Entry
		if err := json.NewDecoder(response.Body).Decode(&made); err != nil {
			return "", operation.Unknown(err)
		}
		return made.ID, nil
	case http.StatusPaymentRequired:
		return "", operation.Final(errDeclined) // an answer, and it will be the same next time
	}
	return "", operation.Unknown(fmt.Errorf("the bank says %s", response.Status))
}
