package webhook

import (
	"net/netip"
	"time"
)

// What tests see of the package.

func (h *Handler) SetClock(now func() time.Time)   { h.now = now }
func (p *Publisher) SetClock(now func() time.Time) { p.sender.now = now }

func IsPublic(address string) bool { return isPublic(netip.MustParseAddr(address)) }

// SignStandard returns the field Webhook-Signature.
func SignStandard(id, digits string, body []byte, texts ...string) string {
	secrets, err := newSecrets(texts, fromBase64)
	if err != nil {
		panic(err)
	}
	return signatureList(secrets.sign(signedByStandard(id, digits, body)...))
}

const MaxSignatures = maxSignatures

// The bounds of a Publisher.
const (
	PerEndpoint = perEndpoint
	MaxResting  = maxResting
	MaxRest     = maxRest
)

// Note tells the Publisher how an attempt has ended, and returns how many endpoints it remembers.
func (p *Publisher) Note(topic string, err error, now time.Time) int {
	p.rest.note(topic, topic, err, now)
	return len(p.rest.away)
}
