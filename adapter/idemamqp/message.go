package idemamqp

import (
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/idem-go/idem/outbox"
)

// HeaderKey is the header that has the Key of a message.
const HeaderKey = "idem-key"

// headerDeliveries is set by quorum queues.
const headerDeliveries = "x-delivery-count"

// publishing is the message as AMQP has it.
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

// fits tells whether AMQP can carry the message. What it cannot would end the connection.
func fits(exchange, routingKey string, m outbox.Message) error {
	for _, name := range []string{HeaderKey, headerDeliveries} {
		if _, taken := m.Headers[name]; taken {
			return fmt.Errorf("idemamqp: the message cannot be published as it is: %s is the name of a header that is not its own", name)
		}
	}
	names := []string{exchange, routingKey, m.ID, m.Type}
	for name := range m.Headers {
		names = append(names, name)
	}
	for _, name := range names {
		if len(name) > 255 {
			return fmt.Errorf("idemamqp: AMQP's names have 255 bytes at most: %.32s…", name)
		}
	}
	return nil
}

// ownHeaders returns the message's own headers that are texts, nil if it has none.
func ownHeaders(d amqp.Delivery) map[string]string {
	var own map[string]string
	for name, value := range d.Headers {
		text, isText := value.(string)
		if !isText || name == HeaderKey {
			continue
		}
		if own == nil {
			own = make(map[string]string, len(d.Headers))
		}
		own[name] = text
	}
	return own
}

// deliveries is how often the broker has delivered a message, this time included. Quorum queues count.
func deliveries(d amqp.Delivery) int {
	if n, ok := d.Headers[headerDeliveries].(int64); ok {
		return int(n) + 1
	}
	if d.Redelivered {
		return 2
	}
	return 1
}
