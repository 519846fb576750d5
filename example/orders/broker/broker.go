// Package broker is a NATS server with JetStream. It runs as a separate process. It syncs every
// message to disk before it confirms the message, so that confirmed messages survive a crash.
package broker

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/idem-go/idem/example/orders/event"
)

// stream stores the orders. JetStream detects that a message is published twice only within the
// short window Duplicates. In this example the window is very short on purpose: if a relay
// publishes a message again after a crash, the broker delivers the message again, and the consumer
// must detect the duplicate.
var stream = jetstream.StreamConfig{
	Name: "ORDERS", Subjects: []string{event.Orders}, Storage: jetstream.FileStorage, Duplicates: 100 * time.Millisecond,
}

const startLimit = time.Minute

// Broker is a running server.
type Broker struct{ server *server.Server }

// Start starts a broker that listens on address and stores its messages in dir.
func Start(ctx context.Context, address, dir string) (*Broker, error) {
	tcp, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return nil, err
	}
	port := tcp.Port
	if port == 0 {
		port = server.RANDOM_PORT
	}
	s, err := server.NewServer(&server.Options{
		Host: tcp.IP.String(), Port: port, JetStream: true, StoreDir: dir, SyncAlways: true, NoLog: true, NoSigs: true,
	})
	if err != nil {
		return nil, err
	}
	s.Start()
	b := &Broker{s}
	if !s.ReadyForConnections(startLimit) {
		b.Stop()
		return nil, fmt.Errorf("the broker is not ready after %v", startLimit)
	}
	if err := b.addStream(ctx); err != nil {
		b.Stop()
		return nil, err
	}
	return b, nil
}

// addStream creates the stream, or updates its configuration.
func (b *Broker) addStream(ctx context.Context) error {
	conn, err := nats.Connect("", nats.InProcessServer(b.server))
	if err != nil {
		return err
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		return err
	}
	_, err = js.CreateOrUpdateStream(ctx, stream)
	return err
}

// URL returns the address for clients.
func (b *Broker) URL() string { return "nats://" + b.server.Addr().String() }

// Stop shuts the server down and waits until it has ended.
func (b *Broker) Stop() {
	b.server.Shutdown()
	b.server.WaitForShutdown()
}

// Connect returns a connection to a broker. It does not wait for the broker: it connects in the
// background, and reconnects whenever the connection is lost.
func Connect(url string) (jetstream.JetStream, error) {
	conn, err := nats.Connect(url, nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond))
	if err != nil {
		return nil, err
	}
	return jetstream.New(conn)
}

// Consumer returns the consumer with a name, and creates it if necessary. Messages that are not
// acknowledged within AckWait are redelivered. AckWait is short, so that the demonstration does not
// wait long for a redelivery.
func Consumer(ctx context.Context, js jetstream.JetStream, name string) (jetstream.Consumer, error) {
	return js.CreateOrUpdateConsumer(ctx, stream.Name, jetstream.ConsumerConfig{
		Durable: name, AckPolicy: jetstream.AckExplicitPolicy, AckWait: 2 * time.Second, MaxDeliver: -1,
	})
}
