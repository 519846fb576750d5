package conform

import "slices"

// Profile describes a specification of idempotency keys: its rules, and the details in which it
// differs from other specifications.
type Profile struct {
	Name  string
	Rules []Rule

	quoted bool // the header field has the key in quotes, as a string of RFC 9651
	inBody bool // the key is the field request_id of the body
	// same reports whether two answers count as the answer of one execution.
	same      func(a, b *answer) bool
	required  bool              // a request without a key is refused
	reused    []int             // statuses that refuse a key which another request has used
	codes     map[string]string // the error code in the body of a refusal, by the name of the rule
	refusedAs []int             // statuses that refuse a malformed key
}

// Rule is a requirement of a profile.
type Rule struct {
	Name   string `json:"rule"`
	What   string `json:"what"`
	Source string `json:"source"`

	try func(*probe) finding
}

// Names returns the names of all profiles.
func Names() []string {
	var names []string
	for _, p := range profiles() {
		names = append(names, p.Name)
	}
	return names
}

// Find returns the profile with this name, and reports whether it exists.
func Find(name string) (*Profile, bool) {
	all := profiles()
	i := slices.IndexFunc(all, func(p *Profile) bool { return p.Name == name })
	if i < 0 {
		return nil, false
	}
	return all[i], true
}

// profiles returns all profiles. Each rule names its source in the specification, and the report
// prints this source.
func profiles() []*Profile {
	const (
		draft    = "draft-ietf-httpapi-idempotency-key-header-07, "
		stripe   = "docs.stripe.com/api/idempotent_requests"
		stripeV2 = "docs.stripe.com/api-v2-overview, Idempotency"
		acp      = "Agentic Commerce Protocol, rfc.agentic_checkout, section 6 (version 2026-04-17)"
		ucp      = "Universal Commerce Protocol, version 2026-04-08, "
		ucpKeys  = ucp + "signatures.md, Replay Protection"
		aip      = "google.aip.dev/155"
	)
	return []*Profile{
		{
			Name: "ietf", same: sameMeaning, quoted: true, required: true, reused: []int{422}, refusedAs: []int{400, 422},
			Rules: []Rule{
				{"repetition", "a repetition of a completed request has the same answer", draft + "section 2.6", repetition},
				{"after-a-cut", "after the caller has disconnected, a repetition succeeds, and later repetitions have the same answer", draft + "section 2.6", afterACut},
				{"at-once", "of many concurrent requests one is executed; the others get its answer or 409", draft + "sections 2.6 and 2.7", atOnce},
				{"other-request", "a key with another body is refused with 422", draft + "section 2.7", otherRequest},
				{"no-key", "a request without a key is refused with 400", draft + "section 2.7", noKey},
				{"two-keys", "two keys are refused, because the field is one string", draft + "section 2.1", twoKeys},
				{"empty-key", "an empty key is refused", draft + "section 2.1, by RFC 9651", emptyKey},
				{"long-key", "a key of 5,000 characters is refused, or compared to its last character", draft + "section 2.2", longKey},
				{"documented-refusal", "a refusal links to documentation", draft + "section 2.7", documentedRefusal},
				{"principal", "another principal with the same key does not get the answer", draft + "section 5", principal},
			},
		},
		{
			Name: "stripe", same: sameBytes, reused: []int{400}, refusedAs: []int{400},
			Rules: []Rule{
				{"repetition", "a repetition has the same status and body", stripe, repetition},
				{"replay-mark", "a replay has Idempotent-Replayed: true, and a first answer does not", stripe, replayMark("Idempotent-Replayed")},
				{"after-a-cut", "after the caller has disconnected, a repetition succeeds, and later repetitions have the same answer", stripe, afterACut},
				{"at-once", "of many concurrent requests one is executed; the others get its answer or 409", stripe, atOnce},
				{"other-request", "a key with other parameters is refused with 400", stripe, otherRequest},
				{"no-key", "a request without a key is executed", stripe, noKey},
				{"long-key", "a key of more than 255 characters is refused", stripe, longKey},
				{"principal", "another account with the same key does not get the answer", stripe, principal},
			},
		},
		{
			Name: "stripe-v2", same: sameObject, reused: []int{400, 409, 422}, refusedAs: []int{400},
			Rules: []Rule{
				{"repetition", "a repetition of a successful request has its answer, or an updated one for the same object", stripeV2, repetition},
				{"after-a-cut", "after the caller has disconnected, a repetition succeeds, and later ones are about the same object", stripeV2, afterACut},
				{"at-once", "of many concurrent requests one is executed; the others get its answer or 409", stripeV2 + "; docs.stripe.com/api/errors", atOnce},
				{"failed-request", "a repetition of a failed request is executed again", stripeV2, failedRequest},
				{"other-request", "a key with other parameters is refused", stripe, otherRequest},
				{"no-key", "a request without a key is executed", stripeV2, noKey},
				{"long-key", "a key of more than 255 characters is refused", stripe, longKey},
				{"principal", "another account with the same key does not get the answer", stripeV2, principal},
			},
		},
		{
			Name: "acp", same: sameMeaning, required: true, reused: []int{422}, refusedAs: []int{400, 422},
			codes: map[string]string{"no-key": "idempotency_key_required", "other-request": "idempotency_conflict", "at-once": "idempotency_in_flight"},
			Rules: []Rule{
				{"repetition", "a repetition has the original answer", acp, repetition},
				{"after-a-cut", "after the caller has disconnected, a repetition succeeds, and later repetitions have the same answer", acp, afterACut},
				{"at-once", "of many concurrent requests one is executed; the others get its answer or 409 with idempotency_in_flight", acp, atOnce},
				{"other-request", "a key with other parameters is refused with 422 and idempotency_conflict", acp, otherRequest},
				{"same-json", "JSON with the same meaning in another spelling is the same request", acp, sameJSON},
				{"no-key", "a request without a key is refused with 400 and idempotency_key_required", acp, noKey},
				{"long-key", "a key of more than 255 characters is refused", acp, longKey},
				{"echo", "every answer has the key", acp, echo},
				{"principal", "another identity with the same key does not get the answer", acp, principal},
			},
		},
		{
			Name: "ucp", same: sameMeaning, reused: []int{409},
			Rules: []Rule{
				{"repetition", "a repetition has the answer of the first request", ucpKeys, repetition},
				{"after-a-cut", "after the caller has disconnected, a repetition succeeds, and later repetitions have the same answer", ucpKeys, afterACut},
				{"at-once", "of many concurrent requests one is executed; the others get its answer or 409", ucpKeys, atOnce},
				{"other-request", "a key with other parameters is refused with 409", ucp + "checkout-rest.md, Specific Header Requirements", otherRequest},
				{"principal", "another client with the same key does not get the answer", ucpKeys, principal},
			},
		},
		{
			Name: "aip155", same: sameMeaning, inBody: true, refusedAs: []int{400},
			Rules: []Rule{
				{"repetition", "a repetition of a request_id has the answer of the first request", aip, repetition},
				{"after-a-cut", "after the caller has disconnected, a repetition succeeds, and later repetitions have the same answer", aip, afterACut},
				{"at-once", "of many concurrent requests one is executed; the others get its answer or 409", aip, atOnce},
				{"no-key", "a request without a request_id is executed", aip, noKey},
				{"malformed-id", "a request_id that is not a UUID is refused with 400", aip, malformedID},
				{"principal", "another principal with the same request_id does not get the answer", aip, principal},
			},
		},
	}
}
