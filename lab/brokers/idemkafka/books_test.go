package idemkafka_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"

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
func (b books) enter(tx pgx.Tx, m inbox.Message, _ *kgo.Record) error { return b.Enter(tx, m) }
