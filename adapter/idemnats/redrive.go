package idemnats

import (
	"context"
	"net/url"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/idem-go/idem/inbox"
)

// redriven is a redriven dead letter, for a Handler. No stream has delivered it: it has the payload
// and the headers of the message, and neither a subject nor metadata. To acknowledge it has no
// effect.
type redriven struct{ message inbox.Message }

func (r redriven) Headers() nats.Header {
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

func (redriven) Metadata() (*jetstream.MsgMetadata, error) { return nil, jetstream.ErrNotJSMessage }
func (r redriven) Data() []byte                            { return r.message.Payload }
func (redriven) Subject() string                           { return "" }
func (redriven) Reply() string                             { return "" }
func (redriven) Ack() error                                { return nil }
func (redriven) DoubleAck(context.Context) error           { return nil }
func (redriven) Nak() error                                { return nil }
func (redriven) NakWithDelay(time.Duration) error          { return nil }
func (redriven) InProgress() error                         { return nil }
func (redriven) Term() error                               { return nil }
func (redriven) TermWithReason(string) error               { return nil }
