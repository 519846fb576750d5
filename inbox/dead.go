package inbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/abridge"
	"github.com/idem-go/idem/internal/deadletter"
	"github.com/idem-go/idem/internal/store"
)

// ErrNoDeadLetter says that there is no dead letter of that name.
var ErrNoDeadLetter = deadletter.ErrNotFound

// DeadLetter is a message that a consumer could not handle, after as many attempts as it may have. Its ID is that of the message, or
// one made of it, if another message has that or it breaks a rule.
type DeadLetter struct {
	Message
	Consumer string
	Class    string // the kind of the last error: fit to be a label
	Reason   string // its text, cut off if it is long
	Attempts int
	SealedBy string // the key with which payload and headers are sealed, which Show opens; "" if they are plain

	DiedAt time.Time // for the last time
}

// List returns up to room dead letters, in the order of consumer, source and ID, beyond the one that is given. They have neither payload
// nor headers. An empty consumer is all consumers.
func List(ctx context.Context, pool *pgxpool.Pool, consumer string, after DeadLetter, room int) ([]DeadLetter, error) {
	if pool == nil {
		return nil, errNoPool
	}
	letters, err := deadletter.List(ctx, pool, nameOf(consumer, "", ""), nameOf(after.Consumer, after.Source, after.ID), room)
	if err != nil {
		return nil, hint(err)
	}
	dead := make([]DeadLetter, len(letters))
	for i := range letters {
		dead[i] = readLetter(&letters[i])
	}
	return dead, nil
}

// Show returns a dead letter with what it says. The Sealer may be nil if it is not sealed.
func Show(ctx context.Context, pool *pgxpool.Pool, sealer idem.Sealer, consumer, source, id string) (DeadLetter, error) {
	if pool == nil {
		return DeadLetter{}, errNoPool
	}
	letter, err := deadletter.Show(ctx, pool, nameOf(consumer, source, id))
	if err != nil {
		return DeadLetter{}, hint(err)
	}
	dead := readLetter(&letter)
	dead.Payload, dead.Headers, err = open(letter.Contents, sealer, letter.LetterName)
	if err != nil {
		return DeadLetter{}, err
	}
	return dead, nil
}

// Drop removes a dead letter for good. The message is still known to be dead: a delivery of it has no effect.
func Drop(ctx context.Context, pool *pgxpool.Pool, consumer, source, id string) error {
	if pool == nil {
		return errNoPool
	}
	return hint(deadletter.Drop(ctx, pool, nameOf(consumer, source, id)))
}

var errNoPool = errors.New("inbox: pool is nil")

func nameOf(consumer, source, id string) deadletter.Name {
	return deadletter.Name{Side: deadletter.Inbox, Consumer: consumer, Source: source, ID: id}
}

func readLetter(l *deadletter.Letter) DeadLetter {
	return DeadLetter{
		Message: Message{Source: l.Source, ID: l.ID, Key: l.Key, Type: l.Type}, Consumer: l.Consumer, Class: l.Class, Reason: l.Reason,
		Attempts: l.Attempts, SealedBy: l.Contents.SealedBy, DiedAt: l.DiedAt,
	}
}

// open returns what a dead letter says.
func open(c store.Contents, sealer idem.Sealer, name deadletter.Name) (payload []byte, headers map[string]string, err error) {
	var by store.Sealer // not an interface around a nil one
	if sealer != nil {
		by = sealer
	}
	contents, err := c.Open(by, name)
	if err == nil {
		headers, err = store.ReadHeaders(contents.Headers)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("inbox: read the dead letter of message %s: %w", abridge.Printable(name.ID), err)
	}
	return contents.Payload, headers, nil
}
