package webhook_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/idem-go/idem/webhook"
)

// FuzzSignatureFields tries arbitrary values of the signature field, alone and beside a valid
// signature. Alone, a value is accepted only if it contains the valid signature. Beside it, the
// request is accepted unless there are too many signatures or another time.
func FuzzSignatureFields(f *testing.F) {
	for _, list := range []string{
		"", " ", ",", "=", "v1", "v1,", "v1=", "v1,AAAA", "v1=00", "t=", "t=1", "t=1,t=2", "v1,====", "sha256=", "sha256=00", "v1,\x00", "v2,x v1a,y",
		strings.Repeat("v1,AAAA ", 40), strings.Repeat("v1=00,", 40), standardDelivery.header["Webhook-Signature"],
	} {
		f.Add(list, "1614265330", "msg_1", []byte("{}"))
	}
	f.Add("v1,AAAA", "-1", "msg.1", []byte("."))
	f.Add("v1,AAAA", strings.Repeat("9", 12), "", []byte(nil))
	standard, stripe, github := verifier(f, webhook.StandardWebhooks, standardSecret), verifier(f, webhook.Stripe, stripeSecret), verifier(f, webhook.GitHub, stripeSecret)
	f.Fuzz(func(t *testing.T, list, digits, id string, body []byte) {
		time := len(digits) > 0 && len(digits) <= 12 && strings.Trim(digits, "0123456789") == ""
		goodStandard := webhook.SignStandard(id, digits, body, standardSecret)
		inner := func(value string) *http.Request {
			return delivery{header: map[string]string{"Webhook-Id": id, "Webhook-Timestamp": digits, "Webhook-Signature": value}}.request()
		}
		wantVerdict(t, standard, inner(list), body, list, goodStandard, time && !strings.Contains(id, "."), false)
		few := strings.Count(list, "v1,") < webhook.MaxSignatures
		wantVerdict(t, standard, inner(list+" "+goodStandard), body, goodStandard, goodStandard, time && !strings.Contains(id, "."), few)

		goodStripe := hexOf(digits + "." + string(body))
		outer := func(value string) *http.Request {
			return delivery{header: map[string]string{"Stripe-Signature": value}}.request()
		}
		wantVerdict(t, stripe, outer("t="+digits+","+list), body, strings.ToLower(list), goodStripe, time, false)
		few = strings.Count(list, "v1=") < webhook.MaxSignatures && !strings.Contains(list, "t=")
		plain := !strings.Contains(digits, ",")
		wantVerdict(t, stripe, outer("t="+digits+","+list+",v1="+goodStripe), body, goodStripe, goodStripe, time && plain, few && time)

		goodGitHub := "sha256=" + hexOf(string(body))
		signed := func(value string) *http.Request {
			return delivery{header: map[string]string{"X-Hub-Signature-256": value}}.request()
		}
		wantVerdict(t, github, signed(list), body, strings.ToLower(list), goodGitHub, true, false)
		wantVerdict(t, github, signed(goodGitHub), body, goodGitHub, goodGitHub, true, true)
	})
}

// wantVerdict fails the test if a request is accepted that must not be, or whose value contains no
// valid signature, or if a request is refused that must be accepted.
func wantVerdict(t *testing.T, v webhook.Verifier, r *http.Request, body []byte, said, good string, may, must bool) {
	t.Helper()
	_, err := v.Verify(r, body)
	switch {
	case err != nil && !errors.Is(err, webhook.ErrSignature):
		t.Errorf("the error is %v", err)
	case err == nil && !(may && strings.Contains(said, good)):
		t.Errorf("taken: %q", r.Header)
	case err != nil && may && must:
		t.Errorf("refused: %q: %v", r.Header, err)
	}
}

func hexOf(content string) string {
	mac := hmac.New(sha256.New, []byte(stripeSecret))
	mac.Write([]byte(content))
	return hex.EncodeToString(mac.Sum(nil))
}
