package idemamqp

import (
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/outbox"
)

// redriven is the delivery of a dead letter that is tried again, for a Handler. It comes from no queue.
func redriven(m inbox.Message) amqp.Delivery {
	p := publishing(outbox.Message{ID: m.ID, Key: m.Key, Type: m.Type, Headers: m.Headers, Payload: m.Payload})
	return amqp.Delivery{MessageId: p.MessageId, Type: p.Type, Headers: p.Headers, Body: p.Body, DeliveryMode: p.DeliveryMode, Redelivered: true}
}
