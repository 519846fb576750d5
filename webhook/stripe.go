package webhook

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// Stripe verifies the field Stripe-Signature, by one of the secrets as Stripe's dashboard shows them. Of the signatures, those
// of version v1 count. The ID of an event is the member "id" of the body.
//
// Stripe signs a delivery anew whenever it repeats it, and its body may differ then in "pending_webhooks": the payload of an
// event is the body without that member, as compact JSON.
func Stripe(secrets ...string) (Verifier, error) {
	read, err := newSecrets(secrets, asWritten)
	if err != nil {
		return nil, err
	}
	return &stripe{read}, nil
}

type stripe struct{ secrets secrets }

// Verify implements Verifier.
func (s *stripe) Verify(r *http.Request, body []byte) (Event, error) {
	value, err := field(r.Header, "Stripe-Signature")
	if err != nil {
		return Event{}, err
	}
	digits, signatures, err := parseStripe(value)
	if err != nil {
		return Event{}, err
	}
	at, err := unixTime(digits)
	switch {
	case err != nil:
		return Event{}, err
	case !s.secrets.match(signatures, []byte(digits+"."), body):
		return Event{}, ErrSignature
	}
	id, payload := readStripe(body)
	return Event{ID: id, SentAt: at, Payload: payload}, nil
}

// parseStripe reads "t=1492774577,v1=5257a8…,v1=…,v0=…". Versions that are unknown do not count.
func parseStripe(value string) (digits string, signatures [][]byte, err error) {
	times := 0
	for item := range strings.SplitSeq(value, ",") {
		if text, ok := strings.CutPrefix(item, "t="); ok {
			digits = text
			times++
		}
		if text, ok := strings.CutPrefix(item, "v1="); ok {
			if signature, err := hex.DecodeString(text); err == nil {
				signatures = append(signatures, signature)
			}
		}
	}
	if times > 1 {
		return "", nil, fmt.Errorf("%w: there are %d times", ErrSignature, times)
	}
	return digits, signatures, nil
}

// readStripe returns the id of an event, and what it says. A body that is no event has no id.
func readStripe(body []byte) (id string, payload []byte) {
	var members map[string]json.RawMessage
	if json.Unmarshal(body, &members) != nil || json.Unmarshal(members["id"], &id) != nil {
		return "", nil
	}
	delete(members, "pending_webhooks")
	payload, err := json.Marshal(members)
	if err != nil {
		panic(err) // it was just read
	}
	return id, payload
}
