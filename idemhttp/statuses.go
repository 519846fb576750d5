package idemhttp

import (
	"fmt"
	"net/http"
)

// Statuses sets the status codes of those problems for which APIs use different codes. A field that
// is zero selects the default, which is the code in the comment of the field. The defaults are the
// codes of the IETF draft, or usual codes where the draft has none.
type Statuses struct {
	MissingKey   int // 400
	InvalidKey   int // 400
	KeyReused    int // 422
	InProgress   int // 409
	Forbidden    int // 403
	BodyTooLarge int // 413
	Unavailable  int // 503
}

// settle fills in the defaults and returns an error for a status that is not 4xx or 5xx.
func (s *Statuses) settle() error {
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
			return fmt.Errorf("idemhttp: Config.Statuses.%s: %d is not a status from 400 to 599", status.name, *status.value)
		}
	}
	return nil
}
