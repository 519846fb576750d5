package main

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemhttp"
)

// writeJSON writes a response with value as its JSON body.
func writeJSON(w http.ResponseWriter, status int, value any) {
	body, err := json.Marshal(value)
	if err != nil {
		panic(err) // cannot happen: every type of this package can be encoded
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(append(body, '\n')) // an error means that the client has gone
}

// refuse answers a request that failed with err and that package idemhttp does not serve. Package
// idemhttp answers the failures of the requests that place orders.
func refuse(w http.ResponseWriter, r *http.Request, err error) {
	if known, ok := errors.AsType[*idemhttp.Problem](err); ok {
		known.ServeHTTP(w, r)
		return
	}
	slog.ErrorContext(r.Context(), "request failed", "method", r.Method, "path", r.URL.Path, "error", err)
	answer := &idemhttp.Problem{Type: "urn:example:internal", Title: "The service has failed",
		Status: http.StatusInternalServerError}
	if idem.Retryable(err) {
		answer = &idemhttp.Problem{Type: "urn:example:try-again", Title: "Try again",
			Status: http.StatusServiceUnavailable, Retryable: true, RetryAfter: time.Second}
	}
	answer.ServeHTTP(w, r)
}
