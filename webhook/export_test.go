package webhook

import (
	"net/netip"
	"time"
)

// Exports for the tests in package webhook_test.

func (h *Handler) SetClock(now func() time.Time)   { h.now = now }
func (p *Publisher) SetClock(now func() time.Time) { p.sender.now = now }

func IsPublic(address string) bool { return isPublic(netip.MustParseAddr(address)) }

// SignStandard returns the value of the field Webhook-Signature.
func SignStandard(id, seconds string, body []byte, texts ...string) string {
	secrets, err := newSecrets(texts, fromBase64)
	if err != nil {
		panic(err)
	}
	return formatStandard(secrets.sign(standardContent(id, seconds, body)...))
}

const (
	MaxSignatures = maxSignatures
	PerEndpoint   = perEndpoint
	MaxBackoff    = maxBackoff
)
