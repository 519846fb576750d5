package webhook_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem/webhook"
)

// The secrets of the documented examples of each scheme, and others.
const (
	standardSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	otherSecret    = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
	stripeSecret   = "whsec_test_secret"
	oldStripe      = "whsec_old_secret"
	githubSecret   = "It's a Secret to Everybody"
)

// A delivery is a request as its provider signs it.
type delivery struct {
	header map[string]string
	body   string
}

func (d delivery) request(edits ...func(*http.Request)) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/webhooks", strings.NewReader(d.body))
	for name, value := range d.header {
		r.Header.Set(name, value)
	}
	for _, edit := range edits {
		edit(r)
	}
	return r
}

// The example of the libraries of Standard Webhooks.
var standardDelivery = delivery{map[string]string{
	"Webhook-Id":        "msg_p5jXN8AQM9LWM0D4loKWxJek",
	"Webhook-Timestamp": "1614265330",
	"Webhook-Signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
}, `{"test": 2432232314}`}

// The same with the field names of Svix.
var svixDelivery = delivery{map[string]string{
	"Svix-Id":        "msg_p5jXN8AQM9LWM0D4loKWxJek",
	"Svix-Timestamp": "1614265330",
	"Svix-Signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
}, `{"test": 2432232314}`}

// According to Stripe's documentation. The signatures were made by openssl dgst -sha256 -hmac.
var stripeDelivery = delivery{map[string]string{
	"Stripe-Signature": "t=1492774577,v1=b4072ad56aa4ab3c37e10354d28ae7e2bb33612a032cba4eb84b0812aeaa1104," +
		"v1=f657213da2f31f0b2dcd2bc819edc5aa514ccb58d864ccb0dca7f82c2e3ccb54," +
		"v0=6ffbb59b2300aae63f272406069a9788598b792a944a07aba816edb039989a39",
}, `{"id":"evt_1","object":"event","pending_webhooks":2,"type":"charge.succeeded"}`}

// The example of GitHub's documentation.
var githubDelivery = delivery{map[string]string{
	"X-GitHub-Delivery":   "72d3162e-cc78-11e3-81ab-4c9367dc0958",
	"X-Hub-Signature-256": "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17",
}, "Hello, World!"}

type maker func(...string) (webhook.Verifier, error)

var schemes = map[string]struct {
	make   maker
	secret string
	delivery
	event webhook.Event
}{
	"StandardWebhooks": {webhook.StandardWebhooks, standardSecret, standardDelivery,
		webhook.Event{ID: "msg_p5jXN8AQM9LWM0D4loKWxJek", SentAt: time.Unix(1614265330, 0)}},
	"Svix": {webhook.Svix, standardSecret, svixDelivery,
		webhook.Event{ID: "msg_p5jXN8AQM9LWM0D4loKWxJek", SentAt: time.Unix(1614265330, 0)}},
	"Stripe": {webhook.Stripe, stripeSecret, stripeDelivery,
		webhook.Event{ID: "evt_1", SentAt: time.Unix(1492774577, 0), Payload: []byte(`{"id":"evt_1","object":"event","type":"charge.succeeded"}`)}},
	"GitHub": {webhook.GitHub, githubSecret, githubDelivery,
		webhook.Event{ID: "72d3162e-cc78-11e3-81ab-4c9367dc0958"}},
}

func verifier(t testing.TB, make maker, secrets ...string) webhook.Verifier {
	t.Helper()
	v, err := make(secrets...)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// wantRefused fails the test unless the error is ErrSignature.
func wantRefused(t *testing.T, v webhook.Verifier, r *http.Request, body string) {
	t.Helper()
	event, err := v.Verify(r, []byte(body))
	if !errors.Is(err, webhook.ErrSignature) {
		t.Errorf("event %+v, error %v", event, err)
	}
	if diff := cmp.Diff(webhook.Event{}, event); err != nil && diff != "" {
		t.Errorf("beside the error there is an event: %s", diff)
	}
}

func TestVerify_AcceptsDocumentedExamples(t *testing.T) {
	t.Parallel()
	for name, s := range schemes {
		got, err := verifier(t, s.make, s.secret).Verify(s.request(), []byte(s.body))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(s.event, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestVerify_AcceptsAnyOfSeveralSecrets(t *testing.T) {
	t.Parallel()
	for name, s := range schemes {
		for _, secrets := range [][]string{{s.secret, otherSecret}, {otherSecret, s.secret}} {
			if _, err := verifier(t, s.make, secrets...).Verify(s.request(), []byte(s.body)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	for _, secret := range []string{stripeSecret, oldStripe} { // the example has a signature of each
		if _, err := verifier(t, webhook.Stripe, secret).Verify(stripeDelivery.request(), []byte(stripeDelivery.body)); err != nil {
			t.Error(err)
		}
	}
}

// The test alters every byte of the body, and its length.
func TestVerify_RefusesAnAlteredBody(t *testing.T) {
	t.Parallel()
	for name, s := range schemes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := verifier(t, s.make, s.secret)
			for i := range s.body {
				altered := []byte(s.body)
				altered[i] ^= 1
				wantRefused(t, v, s.request(), string(altered))
			}
			for _, body := range []string{"", s.body[1:], s.body[:len(s.body)-1], s.body + " ", s.body + s.body} {
				wantRefused(t, v, s.request(), body)
			}
		})
	}
}

func set(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

func add(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Add(name, value) }
}

func without(name string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Del(name) }
}

func TestVerify_RefusesAlteredHeaders(t *testing.T) {
	t.Parallel()
	good := func(d delivery, name string) string { return d.header[name] }
	for name, row := range map[string]struct {
		scheme string
		edit   func(*http.Request)
	}{
		"standard: no signature":    {"StandardWebhooks", without("Webhook-Signature")},
		"standard: no time":         {"StandardWebhooks", without("Webhook-Timestamp")},
		"standard: no id":           {"StandardWebhooks", without("Webhook-Id")},
		"standard: another id":      {"StandardWebhooks", set("Webhook-Id", "msg_another")},
		"standard: a later time":    {"StandardWebhooks", set("Webhook-Timestamp", "1614265331")},
		"standard: two ids":         {"StandardWebhooks", add("Webhook-Id", "msg_another")},
		"standard: another version": {"StandardWebhooks", set("Webhook-Signature", "v1a,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=")},
		"standard: other names":     {"Svix", func(r *http.Request) { r.Header = standardDelivery.request().Header }},
		"stripe: no field":          {"Stripe", without("Stripe-Signature")},
		"stripe: two fields":        {"Stripe", add("Stripe-Signature", good(stripeDelivery, "Stripe-Signature"))},
		"stripe: two times":         {"Stripe", set("Stripe-Signature", "t=1492774577,"+good(stripeDelivery, "Stripe-Signature"))},
		"stripe: no time":           {"Stripe", set("Stripe-Signature", strings.TrimPrefix(good(stripeDelivery, "Stripe-Signature"), "t=1492774577,"))},
		"stripe: a later time":      {"Stripe", set("Stripe-Signature", strings.Replace(good(stripeDelivery, "Stripe-Signature"), "577", "578", 1))},
		"stripe: version 0 alone":   {"Stripe", set("Stripe-Signature", strings.ReplaceAll(good(stripeDelivery, "Stripe-Signature"), "v1=", "v0="))},
		"github: no field":          {"GitHub", without("X-Hub-Signature-256")},
		"github: two fields":        {"GitHub", add("X-Hub-Signature-256", good(githubDelivery, "X-Hub-Signature-256"))},
		"github: no algorithm":      {"GitHub", set("X-Hub-Signature-256", strings.TrimPrefix(good(githubDelivery, "X-Hub-Signature-256"), "sha256="))},
		"github: another algorithm": {"GitHub", set("X-Hub-Signature-256", "sha1=757107ea0eb2509fc211221cce984b8a37570b6d")},
		"github: two ids":           {"GitHub", add("X-GitHub-Delivery", "another")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := schemes[row.scheme]
			wantRefused(t, verifier(t, s.make, s.secret), s.request(row.edit), s.body)
		})
	}
}

// The signed content is "a.1614265330.b". It must not be valid for another division into ID and
// body.
func TestVerify_RefusesAMovedEndOfTheID(t *testing.T) {
	t.Parallel()
	v := verifier(t, webhook.StandardWebhooks, standardSecret)
	signed := webhook.SignStandard("msg_1", "1614265330", []byte("1700000000.and so on"), standardSecret)
	r := delivery{map[string]string{
		"Webhook-Id": "msg_1.1614265330", "Webhook-Timestamp": "1700000000", "Webhook-Signature": signed,
	}, "and so on"}
	wantRefused(t, v, r.request(), r.body)
}

// A valid signature counts among others, up to a number that no replacement of a secret needs.
func TestVerify_BoundsTheNumberOfSignatures(t *testing.T) {
	t.Parallel()
	const bad = "v1,Ceo5qEr07ixe2NLpvHk3FH9bwy/WavXrAFQ/9tdO6mc= "
	good := standardDelivery.header["Webhook-Signature"]
	v := verifier(t, webhook.StandardWebhooks, standardSecret)
	few := standardDelivery.request(set("Webhook-Signature", strings.Repeat(bad, webhook.MaxSignatures-1)+good))
	if _, err := v.Verify(few, []byte(standardDelivery.body)); err != nil {
		t.Error(err)
	}
	wantRefused(t, v, standardDelivery.request(set("Webhook-Signature", strings.Repeat(bad, 10_000)+good)), standardDelivery.body)
}

func TestVerifiers_RefuseInvalidSecrets(t *testing.T) {
	t.Parallel()
	for name, s := range schemes {
		for _, secrets := range [][]string{nil, {}, {""}, {s.secret, ""}, {s.secret + "\n"}, {" " + s.secret}} {
			if v, err := s.make(secrets...); err == nil || v != nil {
				t.Errorf("%s takes the secrets %q", name, secrets)
			}
		}
	}
	for _, secret := range []string{"whsec_", "whsec_short", "whsec_not base64, at all!", "whsec_" + strings.Repeat("A", 88), "whpk_" + standardSecret[6:]} {
		_, err := webhook.StandardWebhooks(secret)
		if err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("of the secret %q it says: %v", secret, err)
		}
	}
}

// Stripe decreases "pending_webhooks" from one delivery to the next.
func TestStripe_PayloadIsTheSameInEachDelivery(t *testing.T) {
	t.Parallel()
	v := verifier(t, webhook.Stripe, stripeSecret)
	var payloads []string
	for _, body := range []string{
		`{"id":"evt_1","pending_webhooks":2,"data":{"amount":1e2,"name":"<a&b>","pending_webhooks":7}}`,
		`{"id": "evt_1", "pending_webhooks": 1, "data": {"amount": 1e2, "name": "<a&b>", "pending_webhooks": 7}}`,
	} {
		event, err := v.Verify(delivery{map[string]string{"Stripe-Signature": stripeSignature("1", body)}, body}.request(), []byte(body))
		if err != nil {
			t.Fatal(err)
		}
		payloads = append(payloads, string(event.Payload))
	}
	const want = `{"data":{"amount":1e2,"name":"\u003ca\u0026b\u003e","pending_webhooks":7},"id":"evt_1"}`
	if diff := cmp.Diff([]string{want, want}, payloads); diff != "" {
		t.Error(diff)
	}
}

func stripeSignature(digits, body string) string {
	mac := hmac.New(sha256.New, []byte(stripeSecret))
	mac.Write([]byte(digits + "." + body))
	return "t=" + digits + ",v1=" + hex.EncodeToString(mac.Sum(nil))
}
