package webhook

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// Stripe verifies the header field Stripe-Signature with one of the secrets. A secret has the form
// in which Stripe's dashboard shows it. Signatures of versions other than v1 are ignored. The ID of
// an event is the member "id" of the body.
//
// Stripe signs each delivery anew, and the member "pending_webhooks" may differ between deliveries
// of one event. So the payload of an event is the body without this member, as compact JSON.
func Stripe(secrets ...string) (Verifier, error) { return newScheme(secrets, asBytes, verifyStripe) }

func verifyStripe(secrets secrets, r *http.Request, body []byte) (Event, error) {
	value, err := singleField(r.Header, "Stripe-Signature")
	if err != nil {
		return Event{}, err
	}
	seconds, signatures, err := parseStripe(value)
	if err != nil {
		return Event{}, err
	}
	at, err := unixTime(seconds)
	switch {
	case err != nil:
		return Event{}, err
	case !secrets.match(signatures, []byte(seconds+"."), body):
		return Event{}, ErrSignature
	}
	id, payload := readStripe(body)
	return Event{ID: id, SentAt: at, Payload: payload}, nil
}

// parseStripe parses a value such as "t=1492774577,v1=5257a8…,v1=…,v0=…". It ignores signatures of
// unknown versions.
func parseStripe(value string) (seconds string, signatures [][]byte, err error) {
	times := 0
	for item := range strings.SplitSeq(value, ",") {
		if text, ok := strings.CutPrefix(item, "t="); ok {
			seconds = text
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
	return seconds, signatures, nil
}

// readStripe returns the ID and the payload of an event. Both are empty if the body is not an
// event.
func readStripe(body []byte) (id string, payload []byte) {
	var members map[string]json.RawMessage
	if json.Unmarshal(body, &members) != nil || json.Unmarshal(members["id"], &id) != nil {
		return "", nil
	}
	delete(members, "pending_webhooks")
	payload, err := json.Marshal(members)
	if err != nil {
		panic(err) // the members were just unmarshaled
	}
	return id, payload
}
