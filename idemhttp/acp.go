package idemhttp

import "net/http"

// ACPConfig returns a Config with the rules of the Agentic Commerce Protocol, section 6: every POST needs a key, which comes back with
// the answer, a replay is marked by Idempotent-Replayed, an answer of 500 or more is never remembered, and problems are flat JSON with the
// codes of the protocol. Scope is still to be set: who calls, and the path, since a key on another path is another key.
//
//	config.Scope = func(r *http.Request) (string, error) {
//		buyer, err := authenticated(r)
//		return idem.Scope(buyer, r.URL.Path), err
//	}
func ACPConfig() Config {
	return Config{
		EchoKey:        true,
		Methods:        []string{http.MethodPost},
		ReplayedHeader: "Idempotent-Replayed",
		Render:         renderACP,
	}
}

// acpCodes are the codes that the protocol has. Others are its general ones.
var acpCodes = map[string]string{
	TypeMissingKey: "idempotency_key_required",
	TypeKeyReused:  "idempotency_conflict",
	TypeInProgress: "idempotency_in_flight",
}

// renderACP writes a problem as the protocol has it.
func renderACP(w http.ResponseWriter, _ *http.Request, p *Problem) {
	said := struct {
		Type    string `json:"type"`
		Code    string `json:"code"`
		Message string `json:"message"`
	}{"invalid_request", acpCodes[p.Type], p.Title}
	if p.Detail != "" {
		said.Message += ". " + p.Detail
	}
	switch status := p.status(); {
	case said.Code != "":
	case status == http.StatusServiceUnavailable:
		said.Type, said.Code = "service_unavailable", "service_unavailable"
	case status >= http.StatusInternalServerError:
		said.Type, said.Code = "processing_error", "processing_error"
	default:
		said.Code = "invalid"
	}
	p.send(w, "application/json", said)
}
