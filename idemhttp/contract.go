package idemhttp

import (
	"fmt"
	"net/http"
)

// Statuses are the status codes of the problems on which contracts differ. Zero is the one of the IETF's draft, or where
// the draft has none, the usual one.
type Statuses struct {
	MissingKey   int // 400
	InvalidKey   int // 400
	KeyReused    int // 422
	InProgress   int // 409
	Forbidden    int // 403
	BodyTooLarge int // 413
	Unavailable  int // 503
}

func (s *Statuses) setDefaults() error {
	for _, status := range []struct {
		name     string
		value    *int
		standard int
	}{
		{"MissingKey", &s.MissingKey, http.StatusBadRequest},
		{"InvalidKey", &s.InvalidKey, http.StatusBadRequest},
		{"KeyReused", &s.KeyReused, http.StatusUnprocessableEntity},
		{"InProgress", &s.InProgress, http.StatusConflict},
		{"Forbidden", &s.Forbidden, http.StatusForbidden},
		{"BodyTooLarge", &s.BodyTooLarge, http.StatusRequestEntityTooLarge},
		{"Unavailable", &s.Unavailable, http.StatusServiceUnavailable},
	} {
		if *status.value == 0 {
			*status.value = status.standard
		}
		if *status.value < 400 || *status.value > 599 {
			return fmt.Errorf("idemhttp: Config.Statuses.%s: %d is not the status of an error", status.name, *status.value)
		}
	}
	return nil
}

// Stripe returns a Config with the habits of Stripe's API, for a service whose clients expect them: the key is optional
// and only POST has one, a key that comes with another request is a 400, every answer of a handler is remembered except
// 409 and 429, so also a 500, and a replay is marked by Idempotent-Replayed. Scope is still to be set. What is remembered
// and not below 400 has its writes undone.
//
// The zero Config has the habits of the IETF's draft-ietf-httpapi-idempotency-key-header-07.
func Stripe() Config {
	return Config{
		Optional:       true,
		Methods:        []string{http.MethodPost},
		ReplayedHeader: "Idempotent-Replayed",
		Statuses:       Statuses{KeyReused: http.StatusBadRequest},
		Store: func(status int) Outcome {
			switch {
			case status < 400:
				return Commit
			case status == http.StatusConflict, status == http.StatusTooManyRequests:
				return Forget
			}
			return Undo
		},
	}
}
