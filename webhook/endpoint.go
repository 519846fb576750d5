package webhook

// Endpoint is where webhooks go.
type Endpoint struct {
	URL string

	// Secrets sign each webhook, as Standard Webhooks says: each is "whsec_" and the base64 of 24 to 64 bytes. While a secret is
	// being replaced there are two, and a receiver that knows either is content. One that strangers share is none: every
	// endpoint has its own.
	Secrets []string
}
