package main

import (
	"encoding/json"
	"mime"
	"net/http"
	"regexp"
	"strings"
)

// newOrder is the body of POST /orders.
type newOrder struct {
	SKU         string `json:"sku"`
	Quantity    int32  `json:"quantity"`
	AmountCents int64  `json:"amount_cents"`
	Currency    string `json:"currency"`
	Note        string `json:"note"`
	ClientTime  string `json:"client_time"` // neither part of the order nor of the hash that recognizes a retry
}

// newCheckout is the body of POST /checkouts, an order that is paid by card.
type newCheckout struct {
	newOrder
	Card string `json:"card"` // a token of the bank
}

var (
	skuForm      = regexp.MustCompile(`^[a-z0-9-]{1,64}$`)
	currencyForm = regexp.MustCompile(`^[A-Z]{3}$`)
	cardForm     = regexp.MustCompile(`^[a-z0-9-]{1,64}$`)
)

// read decodes and checks the body of a request. It returns a problem if the body is invalid.
//
// An unknown field is an error, because the client would believe that the field has an effect.
// Another media type than application/json is an error too, because idemhttp may hash such a body
// as bytes, and a retry with other spaces would be refused.
func read[T interface{ check() error }](r *http.Request) (wanted T, err error) {
	if media, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); media != "application/json" {
		return wanted, notJSON()
	}
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&wanted); err != nil {
		return wanted, badRequest("The body is not an order. It has sku, quantity, amount_cents and currency, and may have note and client_time. " +
			"A checkout has a card.")
	}
	return wanted, wanted.check()
}

func (wanted newOrder) check() error {
	switch {
	case !skuForm.MatchString(wanted.SKU):
		return badRequest("A sku has 1 to 64 lower-case letters, digits and hyphens.")
	case wanted.Quantity < 1:
		return badRequest("A quantity is at least 1.")
	case wanted.AmountCents < 1:
		return badRequest("An amount is at least 1 cent.")
	case !currencyForm.MatchString(wanted.Currency):
		return badRequest("A currency has three upper-case letters.")
	case len(wanted.Note) > 500 || strings.ContainsRune(wanted.Note, 0):
		return badRequest("A note has at most 500 bytes, none of them NUL.")
	}
	return nil
}

func (wanted newCheckout) check() error {
	if !cardForm.MatchString(wanted.Card) {
		return badRequest("A card is a token of 1 to 64 lower-case letters, digits and hyphens.")
	}
	return wanted.newOrder.check()
}
