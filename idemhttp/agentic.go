package idemhttp

import (
	"net/http"
	"time"

	"github.com/idem-go/idem"
)

// ACPConfig returns a Config that follows section 6 of the Agentic Commerce Protocol. Every POST
// needs a key, and every answer repeats the key in its header. A replay has the header
// Idempotent-Replayed. An answer of 500 or more is never recorded. Problems are flat JSON objects
// with the error codes of the protocol. The caller must still set Scope. Scope must contain the
// path, because the protocol treats the same key on two paths as two keys.
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

// acpCodes has the codes that the protocol defines for single types of problems. renderACP gives
// every other problem a general code.
var acpCodes = map[string]string{
	TypeMissingKey: "idempotency_key_required",
	TypeKeyReused:  "idempotency_conflict",
	TypeInProgress: "idempotency_in_flight",
}

// renderACP writes a problem in the format of the Agentic Commerce Protocol.
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
// key that is reused for another request is answered with 409. Two requests are only the same if
// their bodies have the same bytes. (This version of the protocol does not define when requests are
// the same; later drafts do.) Answers are kept for 48 hours. The caller must still set Scope. Scope
// must contain the client and the kind of operation.
//
// An MCP client sends different bytes in each attempt, because the JSON-RPC id changes. Use the
// module adapter/idemmcp for MCP.
func UCPConfig() Config {
	return Config{
		Methods:     []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete},
		Statuses:    Statuses{KeyReused: http.StatusConflict},
		Fingerprint: rawFingerprint,
		TTL:         48 * time.Hour,
	}
}

// rawFingerprint hashes a request with the bytes of its body. It does not parse JSON.
func rawFingerprint(r *http.Request, body []byte) (idem.Hash, error) {
	return idem.HashBytes(requestLine(r, mediaType(r.Header.Get("Content-Type")), "bytes"), body), nil
}
