// Package webhook receives webhooks, so that each has its effect once, and sends messages of an
// outbox as webhooks.
//
// # Receiving
//
// A [Handler] handles the requests of one provider at one endpoint:
//
//	verifier, err := webhook.Stripe(os.Getenv("STRIPE_SECRET"))
//	...
//	handler, err := webhook.NewHandler(pool, webhook.HandlerConfig{Consumer: "billing", Source: "stripe", Verifier: verifier},
//		func(tx pgx.Tx, r *http.Request, m inbox.Message) error {
//			_, err := tx.Exec(r.Context(), "insert into payments …", m.ID)
//			return err
//		})
//	...
//	mux.Handle("POST /webhooks/stripe", handler)
//
// The Handler first verifies the signature, over the bytes of the body as they arrived. The
// provider's ID of the event is its key in the inbox. The effect is committed together with the
// record of the event. The response is 2xx only after that commit, so the provider repeats an event
// that was not committed, and a repeated event has no second effect.
//
// # Sending
//
// A [Publisher] is an outbox.Publisher that sends signed webhooks according to Standard Webhooks.
// It keeps the order of a key. An unavailable endpoint blocks no messages of other endpoints. By
// default it connects only to public addresses, because customers choose the URLs.
package webhook
