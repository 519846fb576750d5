package main

import (
	"net/http"

	"github.com/idem-go/idem/idemhttp"
)

// The ways in which this service says no. Those that have to do with a key are idemhttp's.

func badRequest(detail string) *idemhttp.Problem {
	return &idemhttp.Problem{Type: "urn:example:bad-request", Title: "The request cannot be understood",
		Status: http.StatusBadRequest, Detail: detail, SafeNewKey: true}
}

func notJSON() *idemhttp.Problem {
	return &idemhttp.Problem{Type: "urn:example:not-json", Title: "The body is not application/json",
		Status: http.StatusUnsupportedMediaType, SafeNewKey: true}
}

func unauthorized() *idemhttp.Problem {
	return &idemhttp.Problem{Type: "urn:example:unauthorized", Title: "The credential is missing or unknown",
		Status: http.StatusUnauthorized, Header: http.Header{"Www-Authenticate": {"Bearer"}}}
}

func noSuchOrder() *idemhttp.Problem {
	return &idemhttp.Problem{Type: "urn:example:no-such-order", Title: "There is no such order", Status: http.StatusNotFound}
}

// outOfStock is an answer to the order. Its status is not 409, the one of a key in progress: a client would try again.
func outOfStock(wanted newOrder) *idemhttp.Problem {
	return &idemhttp.Problem{Type: "urn:example:out-of-stock", Title: "There is not enough in stock",
		Status: http.StatusUnprocessableEntity, Detail: "No " + wanted.SKU + " was ordered. To ask afresh, use a new key.", SafeNewKey: true}
}

// cardDeclined is the bank's answer. The stock has been given back by then.
func cardDeclined() *idemhttp.Problem {
	return &idemhttp.Problem{Type: "urn:example:card-declined", Title: "The card was declined",
		Status: http.StatusPaymentRequired, Detail: "Nothing was ordered or charged. To try another card, use a new key.", SafeNewKey: true}
}
