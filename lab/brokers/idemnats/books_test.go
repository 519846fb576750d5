package idemnats_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/lab/ledger"
)

var errPoison = errors.New("the amount is negative")

type books struct{ *ledger.Books }

func newBooks(t testing.TB, configure ...func(*pgxpool.Config)) books {
	t.Helper()
	return books{ledger.NewBooks(t, configure...)}
}

// enter is a Handler.
func (b books) enter(tx pgx.Tx, m inbox.Message, _ jetstream.Msg) error { return b.Enter(tx, m) }

// settled waits until the broker has nothing to deliver again.
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
