package idemnats

import (
	"context"
	"net/url"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/idem-go/idem/inbox"
)

// redrive handles the dead letters that are to be tried again.
func (r *run) redrive(ctx context.Context) {
	err := inbox.RunRedrives(ctx, r.pool, r.name, func(tx pgx.Tx, m inbox.Message) error {
		return r.handle(tx, m, redrive{m})
	}, inbox.RedriveConfig{Options: r.config.Options, Logger: r.config.Logger})
	if err != nil {
		r.config.Logger.Error("idemnats: cannot handle dead letters again", "consumer", r.name, "error", err)
	}
}

// redrive is a dead letter that is tried again, for a Handler. It comes from no stream: it has the payload and the headers of the
// message, and neither a subject nor metadata. To acknowledge it does nothing.
type redrive struct{ message inbox.Message }

func (r redrive) Headers() nats.Header {
	h := nats.Header{HeaderID: []string{r.message.ID}}
	for name, value := range r.message.Headers {
		h[name] = []string{value}
	}
	if r.message.Key != "" {
		h[HeaderKey] = []string{url.PathEscape(r.message.Key)}
	}
	if r.message.Type != "" {
		h[HeaderType] = []string{url.PathEscape(r.message.Type)}
	}
	return h
}

func (redrive) Metadata() (*jetstream.MsgMetadata, error) { return nil, jetstream.ErrNotJSMessage }
func (r redrive) Data() []byte                            { return r.message.Payload }
func (redrive) Subject() string                           { return "" }
func (redrive) Reply() string                             { return "" }
func (redrive) Ack() error                                { return nil }
func (redrive) DoubleAck(context.Context) error           { return nil }
func (redrive) Nak() error                                { return nil }
func (redrive) NakWithDelay(time.Duration) error          { return nil }
func (redrive) InProgress() error                         { return nil }
func (redrive) Term() error                               { return nil }
func (redrive) TermWithReason(string) error               { return nil }
