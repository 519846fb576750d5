package main

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/idem-go/idem"
)

// idempotencyKey returns the one key of a request.
func idempotencyKey(header http.Header) (string, error) {
	values := header.Values("Idempotency-Key")
	switch len(values) {
	case 0:
		return "", badRequest("The header Idempotency-Key is missing.")
	case 1:
		if key, ok := parseKey(values[0]); ok {
			return key, nil
		}
	}
	return "", badRequest("The header Idempotency-Key is not one string.")
}

// The header is a string as RFC 9651 has it, in quotes. Many clients leave them out: both forms spell the same key. A bare
// key has no comma, which would make it two keys.
var (
	quotedKey = regexp.MustCompile(`^"([ !#-\[\]-~]|\\["\\])*"$`)
	bareKey   = regexp.MustCompile(`^[!#-+\--:<-\[\]-~]*$`)
	unescape  = strings.NewReplacer(`\"`, `"`, `\\`, `\`)
)

func parseKey(value string) (key string, ok bool) {
	if quotedKey.MatchString(value) {
		return unescape.Replace(value[1 : len(value)-1]), true
	}
	return value, bareKey.MatchString(value)
}

// writeResult answers with what was recorded. A client that cares can tell a replay by its header; any other sees the same
// status, the same Location and the same body every time.
func writeResult(w http.ResponseWriter, result idem.Result) {
	if result.Replayed {
		w.Header().Set("Idempotency-Replayed", "true")
	}
	writeResponse(w, result.Response)
}

func writeResponse(w http.ResponseWriter, response idem.Response) {
	maps.Copy(w.Header(), response.Header)
	w.WriteHeader(response.Status)
	w.Write(response.Body) // if this fails the client is gone, and will ask again
}

// refusal turns an error into what the client needs to know: above all, whether to try again with the same key. The end
// of the request's own context is no verdict on the order: whoever is still there may ask again.
func refusal(err error) *problem {
	if known, ok := errors.AsType[*problem](err); ok {
		return known
	}
	if busy, ok := errors.AsType[*idem.InProgressError](err); ok {
		return &problem{Type: "urn:example:key-in-progress", Title: "The first request with this key is still running",
			Status: http.StatusConflict, retryAfter: busy.RetryAfter}
	}
	switch {
	case errors.Is(err, idem.ErrMismatch):
		return &problem{Type: "urn:example:key-reused", Title: "This key belongs to a different request",
			Status: http.StatusUnprocessableEntity, Detail: "A new request needs a new key. Nothing was done."}
	case errors.Is(err, idem.ErrInvalidKey):
		return badRequest("An Idempotency-Key has 1 to 255 characters.")
	case errors.Is(err, idem.ErrInvalidJSON):
		return badRequest("The body is not one JSON document that all readers understand alike.")
	case idem.Retryable(err), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return &problem{Type: "urn:example:try-again", Title: "Try again with the same key",
			Status: http.StatusServiceUnavailable, retryAfter: time.Second}
	}
	return &problem{Type: "urn:example:internal", Title: "Something is wrong with this service", Status: http.StatusInternalServerError}
}

// wholeSeconds rounds up: a client must not come back too early.
func wholeSeconds(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10)
}
