// Package webhook takes webhooks in so that each has its effect once, and sends messages of an outbox out as webhooks.
//
// # Taking them in
//
// A [Handler] answers the requests of one provider at one endpoint:
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
// Nothing of a request is believed before its signature is verified, over the bytes of the body as they came. Then the
// provider's name for the event is its key in the inbox, and the effect is committed together with the memory of it. The answer
// is 2xx only after that commit, so that a provider repeats whatever was not done, and what it repeats is done once.
//
// # Sending them
//
// A [Publisher] is what an outbox.Relay needs to send webhooks signed as Standard Webhooks says. It keeps the order of a key,
// lets an endpoint that is away hold back no other's messages, and by default connects to no address that is not public:
// the URLs are those of strangers.
package webhook
