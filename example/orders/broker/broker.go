// Package broker is a NATS server with JetStream, to be run as a process of its own: what it has confirmed is on disk, and outlives it.
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

// stream is what the broker keeps. It does know a message again that is published twice, but for no longer than this: what is
// published again after a crash is also delivered again, and its consumer has to know it.
var stream = jetstream.StreamConfig{
	Name: "ORDERS", Subjects: []string{event.Orders}, Storage: jetstream.FileStorage, Duplicates: 100 * time.Millisecond,
}

const startLimit = time.Minute

// Broker is a running server.
type Broker struct{ server *server.Server }

// Start starts a broker that listens on address, and keeps what it has in a directory.
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

// URL is where clients connect.
func (b *Broker) URL() string { return "nats://" + b.server.Addr().String() }

// Stop stops the server.
func (b *Broker) Stop() {
	b.server.Shutdown()
	b.server.WaitForShutdown()
}

// Connect connects to a broker, as soon as it is there, and again whenever it has been away.
func Connect(url string) (jetstream.JetStream, error) {
	conn, err := nats.Connect(url, nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond))
	if err != nil {
		return nil, err
	}
	return jetstream.New(conn)
}

// Consumer returns the consumer of a name, which is made if there is none. What is not acknowledged is delivered again after a
// while that is short, so that no caller has to wait for it here.
func Consumer(ctx context.Context, js jetstream.JetStream, name string) (jetstream.Consumer, error) {
	return js.CreateOrUpdateConsumer(ctx, stream.Name, jetstream.ConsumerConfig{
		Durable: name, AckPolicy: jetstream.AckExplicitPolicy, AckWait: 2 * time.Second, MaxDeliver: -1,
	})
}
