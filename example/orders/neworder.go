package main

import (
	"bytes"
	"encoding/json"
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

// parseOrder reads a request. A field that it does not know is an error: it would be part of what the client means and
// not of what it gets.
func parseOrder(body []byte) (newOrder, error) {
	var wanted newOrder
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&wanted); err != nil {
		return newOrder{}, badRequest("The body is not an order: sku, quantity, amount_cents, currency and, if you like, note and client_time.")
	}
	switch {
	case !skuForm.MatchString(wanted.SKU):
		return newOrder{}, badRequest("A sku has 1 to 64 small letters, digits and hyphens.")
	case wanted.Quantity < 1:
		return newOrder{}, badRequest("A quantity is at least 1.")
	case wanted.AmountCents < 1:
		return newOrder{}, badRequest("An amount is at least 1 cent.")
	case !currencyForm.MatchString(wanted.Currency):
		return newOrder{}, badRequest("A currency has three capital letters.")
	case len(wanted.Note) > 500 || strings.ContainsRune(wanted.Note, 0):
		return newOrder{}, badRequest("A note has at most 500 bytes, none of them NUL.")
	}
	return wanted, nil
}
