package idemamqp_test

import (
	"crypto/rand"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/idem-go/idem/lab/waiting"
	"github.com/idem-go/idem/outbox"
)

var eventually = waiting.Until

// channel returns a channel on a connection of its own.
func channel(t testing.TB, n *node) *amqp.Channel {
	t.Helper()
	conn, err := amqp.Dial(n.url())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	return ch
}

// queue declares a quorum queue, and returns its name.
func queue(t testing.TB, n *node, args amqp.Table) string {
	t.Helper()
	all := amqp.Table{"x-queue-type": "quorum"}
	for name, value := range args {
		all[name] = value
	}
	name := strings.ReplaceAll(t.Name(), "/", ".") + "." + rand.Text()[:8]
	if _, err := channel(t, n).QueueDeclare(name, true, false, false, false, all); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn, err := amqp.Dial(n.url())
		if err != nil {
			return
		}
		defer conn.Close()
		if ch, err := conn.Channel(); err == nil {
			ch.QueueDelete(name, false, false, false)
		}
	})
	return name
}

// message returns a message with a random ID.
func message(topic, key, body string) outbox.Message {
	return outbox.Message{ID: rand.Text(), Topic: topic, Key: key, Type: "Said", Payload: []byte(body)}
}

var within = waiting.Within
