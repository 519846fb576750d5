package main

import (
	"net/http"

	"github.com/idem-go/idem/idemhttp"
)

// These functions return the problems of this service. Package idemhttp has the problems about
// keys.

func badRequest(detail string) *idemhttp.Problem {
	return &idemhttp.Problem{Type: "urn:example:bad-request", Title: "The request is invalid",
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

// outOfStock is the final answer to an order. Its status must not be 409, the status of a key in
// progress, because clients retry after 409.
func outOfStock(wanted newOrder) *idemhttp.Problem {
	return &idemhttp.Problem{Type: "urn:example:out-of-stock", Title: "There is not enough in stock",
		Status: http.StatusUnprocessableEntity, Detail: "No " + wanted.SKU + " was ordered. To order again, use a new key.", SafeNewKey: true}
}

// cardDeclined is the final answer to a checkout whose card was declined. The checkout has returned
// the stock before it gives this answer.
func cardDeclined() *idemhttp.Problem {
	return &idemhttp.Problem{Type: "urn:example:card-declined", Title: "The card was declined",
		Status: http.StatusPaymentRequired, Detail: "Nothing was ordered or charged. To try another card, use a new key.", SafeNewKey: true}
}
