package idemhttp

import (
	"net/http"
	"time"

	"github.com/idem-go/idem"
)

// ACPConfig returns a Config that follows section 6 of the Agentic Commerce Protocol. Every POST
// needs a key, which is sent back with the answer. A replay has the header Idempotent-Replayed. An
// answer of 500 or more is never recorded. Problems are flat JSON with the codes of the protocol.
// Scope must still be set. It must contain the path, because the same key on another path is
// another key.
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

// acpCodes are the specific codes of the protocol. Other problems get a general code.
var acpCodes = map[string]string{
	TypeMissingKey: "idempotency_key_required",
	TypeKeyReused:  "idempotency_conflict",
	TypeInProgress: "idempotency_in_flight",
}

// renderACP writes a problem in the format of the protocol.
func renderACP(w http.ResponseWriter, _ *http.Request, p *Problem) {
	problem := struct {
		Type    string `json:"type"`
		Code    string `json:"code"`
		Message string `json:"message"`
	}{"invalid_request", acpCodes[p.Type], p.Title}
	if p.Detail != "" {
		problem.Message += ". " + p.Detail
	}
	switch status := p.status(); {
	case problem.Code != "":
	case status == http.StatusServiceUnavailable:
		problem.Type, problem.Code = "service_unavailable", "service_unavailable"
	case status >= http.StatusInternalServerError:
		problem.Type, problem.Code = "processing_error", "processing_error"
	default:
		problem.Code = "invalid"
	}
	p.send(w, "application/json", problem)
}

// UCPConfig returns a Config that follows the Universal Commerce Protocol, version 2026-04-08
// (Message Signatures, Replay Protection). Every request that may change something needs a key. A
// key that is reused for another request is a 409. Two requests are the same if their bodies have
// the same bytes: that version does not define this, later drafts do. Answers are kept for 48
// hours. Scope must still be set. It must contain the client and the kind of operation.
//
// A call over MCP has other bytes in each attempt, because its JSON-RPC id changes. Use the module
// adapter/idemmcp for MCP.
func UCPConfig() Config {
	return Config{
		Methods:     []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete},
		Statuses:    Statuses{KeyReused: http.StatusConflict},
		Fingerprint: rawFingerprint,
		TTL:         48 * time.Hour,
	}
}

// rawFingerprint hashes the bytes of a body, whatever they mean.
func rawFingerprint(r *http.Request, body []byte) (idem.Hash, error) {
	return idem.HashBytes(requestLine(r, mediaType(r.Header.Get("Content-Type")), "bytes"), body), nil
}
