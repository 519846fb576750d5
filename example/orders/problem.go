package main

import (
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/idem-go/idem"
)

// problem is an answer that says no, in the form of RFC 9457. Programs branch on Type; the texts are for people.
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`

	retryAfter time.Duration // when to try again; zero if that is pointless
}

func (p *problem) Error() string { return p.Title }

func badRequest(detail string) *problem {
	return &problem{Type: "urn:example:bad-request", Title: "The request cannot be understood",
		Status: http.StatusBadRequest, Detail: detail}
}

func unauthorized() *problem {
	return &problem{Type: "urn:example:unauthorized", Title: "The credential is missing or unknown", Status: http.StatusUnauthorized}
}

func noSuchOrder() *problem {
	return &problem{Type: "urn:example:no-such-order", Title: "There is no such order", Status: http.StatusNotFound}
}

// outOfStock is an answer to the order. Its status is not 409, the one of a key in progress: a client would try again, and
// get the same answer for ever.
func outOfStock(wanted newOrder) *problem {
	return &problem{Type: "urn:example:out-of-stock", Title: "There is not enough in stock",
		Status: http.StatusUnprocessableEntity, Detail: "No " + wanted.SKU + " was ordered. To ask afresh, use a new key."}
}

func unreadable(err error) *problem {
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		return &problem{Type: "urn:example:too-large", Title: "The request is too large", Status: http.StatusRequestEntityTooLarge}
	}
	return badRequest("The body ended early.")
}

// response is the problem in the form in which it is sent, or recorded.
func (p *problem) response() idem.Response {
	response := jsonResponse(p.Status, "application/problem+json", p)
	if p.retryAfter > 0 {
		response.Header["Retry-After"] = []string{wholeSeconds(p.retryAfter)}
	}
	return response
}

func jsonResponse(status int, contentType string, value any) idem.Response {
	body, err := json.Marshal(value)
	if err != nil {
		panic(err) // no type of this package can fail
	}
	return idem.Response{
		Status: status,
		Header: map[string][]string{"Content-Type": {contentType}},
		Body:   append(body, '\n'),
	}
}
