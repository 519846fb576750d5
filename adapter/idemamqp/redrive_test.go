package idemamqp_test

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/idem-go/idem/inbox"
)

func TestConsumer_HandlesRedrivenDeadLetters(t *testing.T) {
	t.Parallel()
	n, pool := rabbit(t), newPool(t)
	q := queue(t, n, nil)
	m := message(q, "a", "mended")
	m.Type, m.Headers = "Ordered", map[string]string{"tenant": "7"}
	publish(t, n, m)
	var repaired atomic.Bool
	got := make(chan amqp.Delivery, 1)
	stop := run(t, consumer(t, pool, n.url(), q, func(tx pgx.Tx, m inbox.Message, d amqp.Delivery) error {
		if !repaired.Load() {
			return errors.New("cannot be read")
		}
		got <- d
		return record(tx, m, d)
	}, quick(t, inbox.WithMaxAttempts(1))))
	dead := func(want int) func() bool {
		return func() bool { return count(t, pool, `SELECT count(*) FROM idem.dead_letters`) == want }
	}
	eventually(t, "a dead letter", dead(1))
	repaired.Store(true)
	var letters []inbox.DeadLetter
	for letter, err := range inbox.List(t.Context(), pool, inbox.Ref{Consumer: "books"}) {
		if err != nil {
			t.Fatal(err)
		}
		letters = append(letters, letter)
	}
	if err := inbox.Redrive(t.Context(), pool, letters[0].Ref()); err != nil {
		t.Fatal(err)
	}
	wantEffects(t, pool, "mended")
	if d := <-got; d.MessageId != letters[0].ID || d.Type != "Ordered" || d.Headers["tenant"] != "7" || d.Headers["idem-key"] != "a" || string(d.Body) != "mended" {
		t.Errorf("the handler got %+v", d)
	}
	eventually(t, "no dead letter", dead(0))
	stop()
}
