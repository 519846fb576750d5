package main

import (
	"encoding/json"
	"mime"
	"net/http"
	"regexp"
	"strings"
)

// newOrder is what a client asks for.
type newOrder struct {
	SKU         string `json:"sku"`
	Quantity    int32  `json:"quantity"`
	AmountCents int64  `json:"amount_cents"`
	Currency    string `json:"currency"`
	Note        string `json:"note"`
	ClientTime  string `json:"client_time"` // for readers of the client's logs: no part of the order
}

// newCheckout is an order that is paid by card.
type newCheckout struct {
	newOrder
	Card string `json:"card"` // the bank's token for it
}

var (
	skuForm      = regexp.MustCompile(`^[a-z0-9-]{1,64}$`)
	currencyForm = regexp.MustCompile(`^[A-Z]{3}$`)
	cardForm     = regexp.MustCompile(`^[a-z0-9-]{1,64}$`)
)

// read reads a request. A field that it does not know is an error: it would be part of what the client means and
// not of what it gets. So is another media type: only as JSON is the body known to be one document with one meaning, since
// that is how its fingerprint was taken.
func read[T interface{ check() error }](r *http.Request) (wanted T, err error) {
	if media, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); media != "application/json" {
		return wanted, notJSON()
	}
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&wanted); err != nil {
		return wanted, badRequest("The body is not an order: sku, quantity, amount_cents, currency and, if you like, note and client_time; " +
			"and a card, if it is a checkout.")
	}
	return wanted, wanted.check()
}

func (wanted newOrder) check() error {
	switch {
	case !skuForm.MatchString(wanted.SKU):
		return badRequest("A sku has 1 to 64 small letters, digits and hyphens.")
	case wanted.Quantity < 1:
		return badRequest("A quantity is at least 1.")
	case wanted.AmountCents < 1:
		return badRequest("An amount is at least 1 cent.")
	case !currencyForm.MatchString(wanted.Currency):
		return badRequest("A currency has three capital letters.")
	case len(wanted.Note) > 500 || strings.ContainsRune(wanted.Note, 0):
		return badRequest("A note has at most 500 bytes, none of them NUL.")
	}
	return nil
}

func (wanted newCheckout) check() error {
	if !cardForm.MatchString(wanted.Card) {
		return badRequest("A card is a token of 1 to 64 small letters, digits and hyphens.")
	}
	return wanted.newOrder.check()
}
