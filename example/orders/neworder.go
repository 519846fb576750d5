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
	ClientTime  string `json:"client_time"` // for whoever reads the client's logs: no part of the order
}

var (
	skuForm      = regexp.MustCompile(`^[a-z0-9-]{1,64}$`)
	currencyForm = regexp.MustCompile(`^[A-Z]{3}$`)
)

// readOrder reads a request. A field that it does not know is an error: it would be part of what the client means and
// not of what it gets. So is another media type: only as JSON is the body known to be one document with one meaning, since
// that is how its fingerprint was taken.
func readOrder(r *http.Request) (newOrder, error) {
	if media, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); media != "application/json" {
		return newOrder{}, notJSON()
	}
	var wanted newOrder
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&wanted); err != nil {
		return newOrder{}, badRequest("The body is not an order: sku, quantity, amount_cents, currency and, if you like, note and client_time.")
	}
	if err := wanted.check(); err != nil {
		return newOrder{}, err
	}
	return wanted, nil
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
