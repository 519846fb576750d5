package webhook_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/idem-go/idem/outbox"
	"github.com/idem-go/idem/webhook"
)

// acme is a scheme that signs the ID and the body.
type acme struct{ secret []byte }

func (a acme) Verify(r *http.Request, body []byte) (webhook.Event, error) {
	ids, signatures := r.Header["Acme-Event"], r.Header["Acme-Signature"]
	if len(ids) != 1 || len(signatures) != 1 { // a repeated field is ambiguous
		return webhook.Event{}, webhook.ErrSignature
	}
	mac := hmac.New(sha256.New, a.secret)
	io.WriteString(mac, ids[0]+"\n")
	mac.Write(body)
	if signature, err := hex.DecodeString(signatures[0]); err != nil || !hmac.Equal(signature, mac.Sum(nil)) {
		return webhook.Event{}, webhook.ErrSignature
	}
	return webhook.Event{ID: ids[0]}, nil
}

// A Verifier can be a scheme of your own.
func ExampleVerifier() {
	var verifier webhook.Verifier = acme{[]byte("secret")}
	r := httptest.NewRequest(http.MethodPost, "/webhooks/acme", nil)
	r.Header.Set("Acme-Event", "7")
	r.Header.Set("Acme-Signature", "5d0047baf22f97a12c2f377c27f4ad12dbad863e051903ad58dc5f4bc2bb2265")
	event, err := verifier.Verify(r, []byte(`{"paid":true}`))
	fmt.Println(event.ID, err)
	_, err = verifier.Verify(r, []byte(`{"paid":false}`))
	fmt.Println(err)
	// Output:
	// 7 <nil>
	// webhook: no valid signature
}

// Each topic of the outbox has an endpoint. The relay calls Publish.
func ExamplePublisher() {
	const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	verifier, err := webhook.StandardWebhooks(secret)
	if err != nil {
		fmt.Println(err)
		return
	}
	subscriber := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		event, err := verifier.Verify(r, body)
		fmt.Println("came:", event.ID, string(body), err)
		if strings.Contains(string(body), "2") {
			w.WriteHeader(http.StatusUnprocessableEntity)
		}
	}))
	defer subscriber.Close()
	publisher, err := webhook.NewPublisher(webhook.PublisherConfig{
		Base: http.DefaultTransport, // by default the Publisher does not connect to this machine
		Endpoint: func(context.Context, string) (webhook.Endpoint, error) {
			return webhook.Endpoint{URL: subscriber.URL, Secrets: []string{secret}}, nil
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = publisher.Publish(context.Background(), []outbox.Message{
		{ID: "a", Topic: "subscriber-1", Key: "order-7", Payload: []byte(`{"n":1}`)},
		{ID: "b", Topic: "subscriber-1", Key: "order-7", Payload: []byte(`{"n":2}`)},
		{ID: "c", Topic: "subscriber-1", Key: "order-7", Payload: []byte(`{"n":3}`)},
	})
	if failed, ok := err.(*outbox.PublishError); ok {
		fmt.Println("b:", failed.Failed["b"])
		fmt.Println("c:", failed.Failed["c"])
	}
	// Output:
	// came: a {"n":1} <nil>
	// came: b {"n":2} <nil>
	// b: webhook: the endpoint has answered 422 Unprocessable Entity
	// c: webhook: an earlier message of the key was not published: webhook: the endpoint has answered 422 Unprocessable Entity
}
