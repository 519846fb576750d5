package idemwatermill_test

import (
	"context"
	"errors"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/adapter/idemwatermill"
	"github.com/idem-go/idem/inbox"
)

func TestDeadLetterThatIsRedrivenIsHandledBesideTheRouter(t *testing.T) {
	t.Parallel()
	pool, config := newPool(t), quick(t, inbox.WithMaxAttempts(1))
	m := inbox.Message{Source: "orders", ID: "1", Key: "k", Type: "Ordered", Headers: map[string]string{"tenant": "7"}, Payload: []byte("mended")}
	_, err := inbox.Handle(t.Context(), pool, "books", m, func(pgx.Tx) error { return errors.New("cannot be read") }, config.Options...)
	if err != nil {
		t.Fatal(err)
	}
	if err := inbox.Redrive(t.Context(), pool, inbox.Ref{Consumer: "books", Source: "orders", ID: "1"}); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	given, ended := make(chan *message.Message, 1), make(chan error, 1)
	go func() {
		ended <- idemwatermill.RunRedrives(ctx, pool, "books", func(tx pgx.Tx, msg *message.Message) error {
			given <- msg
			return record(tx, msg)
		}, config)
	}()
	wantEffects(t, pool, "mended")
	msg := <-given
	want := message.Metadata{"idem-key": "k", "idem-type": "Ordered", "tenant": "7"}
	if diff := cmp.Diff(want, msg.Metadata); diff != "" || msg.UUID != "1" {
		t.Errorf("%s: %s", msg.UUID, diff)
	}
	eventually(t, "no dead letter", func() bool { return count(t, pool, `SELECT count(*) FROM idem.dead_letters`) == 0 })
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
