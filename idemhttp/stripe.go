package idemhttp

import "net/http"

// StripeConfig returns a Config with the habits of Stripe's API v1, for a service whose clients expect them: the key is
// optional and only POST has one, a key that comes with another request is a 400, and a replay is marked by
// Idempotent-Replayed. Every answer of a handler is remembered, so also a 500, except 401, 409 and 429, which Stripe gives
// before an operation begins. Scope is still to be set. What is remembered and not below 400 has its writes undone.
//
// The zero Config has the habits of the IETF's draft-ietf-httpapi-idempotency-key-header-07.
func StripeConfig() Config {
	return Config{
		Optional:       true,
		Methods:        []string{http.MethodPost},
		ReplayedHeader: "Idempotent-Replayed",
		Statuses:       Statuses{KeyReused: http.StatusBadRequest},
		Decide: func(status int) Decision {
			switch status {
			case http.StatusUnauthorized, http.StatusConflict, http.StatusTooManyRequests:
				return Forget
			}
			if status < 400 {
				return Commit
			}
			return Undo
		},
	}
}
