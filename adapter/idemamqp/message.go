package idemamqp

import (
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/outbox"
)

// HeaderKey is the header for the key of a message.
const HeaderKey = "idem-key"

// headerDeliveries is the header in which a quorum queue reports the number of earlier deliveries.
const headerDeliveries = "x-delivery-count"

func publishing(m outbox.Message) amqp.Publishing {
	headers := amqp.Table{}
	for name, value := range m.Headers {
		headers[name] = value
	}
	if m.Key != "" {
		headers[HeaderKey] = m.Key
	}
	return amqp.Publishing{MessageId: m.ID, Type: m.Type, Headers: headers, Body: m.Payload, DeliveryMode: amqp.Persistent}
}

// redriven returns a delivery for a redriven dead letter, which comes from the database and not
// from a queue.
func redriven(m inbox.Message) amqp.Delivery {
	p := publishing(outbox.Message{ID: m.ID, Key: m.Key, Type: m.Type, Headers: m.Headers, Payload: m.Payload})
	return amqp.Delivery{MessageId: p.MessageId, Type: p.Type, Headers: p.Headers, Body: p.Body, DeliveryMode: p.DeliveryMode, Redelivered: true}
}

// checkMessage returns an error if the message has a reserved header, or if its exchange, routing
// key, ID, type or the name of a header is longer than AMQP allows. Such a name would close the
// connection.
func checkMessage(exchange, routingKey string, m outbox.Message) error {
	for _, name := range []string{HeaderKey, headerDeliveries} {
		if _, taken := m.Headers[name]; taken {
			return fmt.Errorf("idemamqp: the message cannot be published: its header %s is reserved; rename the header", name)
		}
	}
	names := []string{exchange, routingKey, m.ID, m.Type}
	for name := range m.Headers {
		names = append(names, name)
	}
	for _, name := range names {
		if len(name) > 255 {
			return fmt.Errorf("idemamqp: the message cannot be published: a name has more than 255 bytes: %.32s…; shorten it", name)
		}
	}
	return nil
}

// ownHeaders returns the headers that have a string as their value, except HeaderKey.
func ownHeaders(d amqp.Delivery) map[string]string {
	own := make(map[string]string, len(d.Headers))
	for name, value := range d.Headers {
		if text, isText := value.(string); isText && name != HeaderKey {
			own[name] = text
		}
	}
	return own
}

// deliveries returns how often the broker has delivered a message. Classic queues only mark a
// redelivery, which counts as 2 deliveries.
func deliveries(d amqp.Delivery) int {
	if n, ok := d.Headers[headerDeliveries].(int64); ok {
		return int(n) + 1
	}
	if d.Redelivered {
		return 2
	}
	return 1
}
