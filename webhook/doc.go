// Package webhook receives webhooks, so that each webhook has its effect once. It also sends the
// messages of an outbox as webhooks.
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
// The Handler first verifies the signature over the bytes of the body as they arrived. The inbox
// identifies an event by the ID that the provider gave it. The effect is committed together with
// the record of the event, and only then the response is 2xx. So the provider repeats an event that
// was not committed, and a repeated event has no second effect.
//
// # Sending
//
// A [Publisher] is an outbox.Publisher that sends signed webhooks according to Standard Webhooks.
// It keeps the order of a key. An unavailable endpoint does not block messages to other endpoints.
// By default the Publisher connects only to public addresses, because customers choose the URLs.
package webhook
