package idemnats_test

import (
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/idem-go/idem/adapter/idemnats"
	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/lab/ledger"
	"github.com/idem-go/idem/lab/pgserver"
)

// broker is a nats-server with JetStream on disk. It can be restarted.
type broker struct {
	t    testing.TB
	dir  string
	port int

	mu  sync.Mutex
	srv *server.Server
}

func newBroker(t testing.TB) *broker {
	t.Helper()
	port, err := pgserver.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	b := &broker{t: t, dir: t.TempDir(), port: port}
	b.start()
	t.Cleanup(b.stop)
	return b
}

func (b *broker) start() {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	srv, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: b.port, JetStream: true, StoreDir: b.dir, NoLog: true, NoSigs: true,
	})
	if err != nil {
		b.t.Fatal(err)
	}
	srv.Start()
	if !srv.ReadyForConnections(ledger.Limit) {
		b.t.Fatal("the broker does not start")
	}
	b.srv = srv
}

func (b *broker) stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.srv.Shutdown()
	b.srv.WaitForShutdown()
}

func (b *broker) url() string {
	return (&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: b.port}).String()
}

// connect returns a client with a connection of its own, which reconnects after a restart.
func (b *broker) connect() jetstream.JetStream {
	b.t.Helper()
	nc, err := nats.Connect(b.url(), nats.MaxReconnects(-1), nats.ReconnectWait(5*time.Millisecond), nats.ReconnectJitter(0, 0))
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		b.t.Fatal(err)
	}
	return js
}

// newStream creates a stream of the subjects orders and orders.>.
func newStream(t testing.TB, js jetstream.JetStream, change ...func(*jetstream.StreamConfig)) jetstream.Stream {
	t.Helper()
	config := jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders", "orders.>"}, Storage: jetstream.FileStorage}
	for _, f := range change {
		f(&config)
	}
	stream, err := js.CreateStream(ledger.Within(t), config)
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

// newSource creates a durable consumer of a stream.
func newSource(t testing.TB, stream jetstream.Stream, change ...func(*jetstream.ConsumerConfig)) jetstream.Consumer {
	t.Helper()
	config := jetstream.ConsumerConfig{Durable: "billing", AckPolicy: jetstream.AckExplicitPolicy, AckWait: ledger.Limit, MaxDeliver: -1}
	for _, f := range change {
		f(&config)
	}
	source, err := stream.CreateConsumer(ledger.Within(t), config)
	if err != nil {
		t.Fatal(err)
	}
	return source
}

// record returns a Handler that records messages.
func record(l *ledger.Ledger) idemnats.Handler {
	return func(tx pgx.Tx, m inbox.Message, _ jetstream.Msg) error { return l.Record(tx, m) }
}

// settled waits until all messages are acknowledged.
func settled(t testing.TB, source jetstream.Consumer) {
	t.Helper()
	ledger.Eventually(t, func() error {
		info, err := source.Info(ledger.Within(t))
		if err == nil && info.NumAckPending+int(info.NumPending) > 0 {
			err = fmt.Errorf("%d messages are not acknowledged, %d not delivered", info.NumAckPending, info.NumPending)
		}
		return err
	})
}
