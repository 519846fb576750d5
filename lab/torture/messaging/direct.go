package messaging

import (
	"math/rand/v2"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/adapter/direct"
	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/lab/torture/letter"
	"github.com/idem-go/idem/outbox"
)

// consumers returns a Publisher that handles the letters of each topic by a direct consumer.
func (o *office) consumers() (outbox.Publisher, error) {
	routes := map[string]outbox.Publisher{}
	for _, consumer := range letter.Direct() {
		r := &reader{o, consumer}
		r.consumer.Ordered = false // direct consumers are always ordered
		config := direct.ConsumerConfig{Options: r.options()}
		if o.Slot%2 == 1 {
			config.Options = append(config.Options, inbox.WithLanes(2+rand.IntN(4)))
		}
		handle := func(tx pgx.Tx, m inbox.Message) error { return r.hear(inbox.Context(tx), tx, m) }
		c, err := direct.NewConsumer(r.pool(), consumer.Name, handle, config)
		if err != nil {
			return nil, err
		}
		routes[consumer.Topic] = c
	}
	return outbox.Route(routes), nil
}
