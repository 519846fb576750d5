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

func writeJSON(w http.ResponseWriter, status int, value any) {
	body, err := json.Marshal(value)
	if err != nil {
		panic(err) // no type of this package can fail
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(append(body, '\n')) // if this fails the client is gone
}

// refuse answers a request that only reads, and has failed. Those that write are answered by idemhttp.
func refuse(w http.ResponseWriter, r *http.Request, err error) {
	if known, ok := errors.AsType[*idemhttp.Problem](err); ok {
		known.ServeHTTP(w, r)
		return
	}
	slog.ErrorContext(r.Context(), "request failed", "method", r.Method, "path", r.URL.Path, "error", err)
	answer := &idemhttp.Problem{Type: "urn:example:internal", Title: "Something is wrong with this service",
		Status: http.StatusInternalServerError}
	if idem.Retryable(err) {
		answer = &idemhttp.Problem{Type: "urn:example:try-again", Title: "Try again",
			Status: http.StatusServiceUnavailable, Retryable: true, RetryAfter: time.Second}
	}
	answer.ServeHTTP(w, r)
}
