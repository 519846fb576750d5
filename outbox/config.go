package outbox

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/store"
)

// RelayConfig changes a Relay. The zero value works.
type RelayConfig struct {
	// Name and Topics divide an outbox among several relays, as of two services with one database, or with two brokers. Topics
	// are the relay's own: names, or beginnings of names that end in *. They are on record in the database under Name. A relay
	// without them has every topic that no relay on record has, and is the only one by default. Run returns ErrTopicTaken if
	// another Name has one of the Topics.
	//
	// When the Topics of a Name change, the process that relays goes on by its own until it ends, and the next one works by its
	// own. A topic is given to another Name by first taking it from the one that has it. ForgetRelay removes a Name.
	Name   string
	Topics []string

	// MaxAttempts is how often a message may fail before it is a dead letter. The default is 10. An attempt counts if the
	// Publisher has named the message, or the relay has found it out, by others that were published before and after it has failed.
	// That a destination is away counts nothing.
	MaxAttempts int

	// MaxAway is how long a message may wait for a destination that is away, from when it was added, before it is a dead letter of
	// the class "away". It dies only once this relay has found the destination away for an hour without an interruption, or for
	// MaxAway if that is less. The default is without limit.
	MaxAway time.Duration

	// MinPause and MaxPause bound the pause after an attempt that has failed: it doubles from one attempt to the next. The
	// defaults are half a second and 5 minutes. Messages that were found out are left alone for longer, up to an hour, where calls with
	// them take more than a fifth of the time.
	MinPause, MaxPause time.Duration

	// BatchSize is how many messages the Publisher is given at most, and how many are read at a time, if not all that was read before is
	// refused. The default is 1,000. A message that was published is removed with its batch: it is published again if the relay dies before.
	BatchSize int

	// MaxInHand is how many bytes of payloads and headers the calls of a Publisher that is a Divider have in hand at once, those of all
	// destinations and streams together, and one message more. A call has no more than a thirty-second of what is left, so that large messages of one
	// destination hold up no other. The default is 256 MiB. What is read at a time is an eighth of it, divided among the streams, 16 MiB at most, of
	// new messages and of those that are tried again.
	MaxInHand int

	// Poll is how often the outbox is looked at when there is nothing in it: after 50 ms at first, and then up to Poll. The
	// default is a second, the limit 10 seconds.
	Poll time.Duration

	// PublishTimeout is how long a call of the Publisher may take until its context ends. The default is 30 seconds.
	PublishTimeout time.Duration

	// Drain is how long the call that is under way may go on after the end of the context of Run. The default is 5 seconds.
	Drain time.Duration

	// Streams is how many parts of the outbox are relayed side by side, up to 16, each by whichever process comes first. The
	// messages of one key are in one stream. The default is 1: more are for a Publisher that is slow, as they read the table
	// as often. Processes that do not agree about it wait for each other.
	Streams int

	// Retention is how long a message that was published is kept in idem.published, from which package purge removes it. The
	// default is not to keep it.
	Retention time.Duration

	// Sealer seals what a dead letter says. With one, idem.published has neither payload nor headers. What is in the outbox is
	// never sealed: it is about to leave.
	Sealer idem.Sealer

	// OnDead is told of every message that has become a dead letter, if it is not nil. It holds up its stream.
	OnDead func(DeadLetter)

	// Observer is told of every call of the Publisher, if it is not nil.
	Observer RelayObserver

	// Logger is told what is told nowhere else. The default is slog.Default().
	Logger *slog.Logger
}

func (c *RelayConfig) set() error {
	for _, d := range []time.Duration{c.MinPause, c.MaxPause, c.Poll, c.PublishTimeout, c.Drain, c.Retention, c.MaxAway} {
		if d < 0 {
			return errors.New("outbox: RelayConfig: a duration is negative")
		}
	}
	if err := checkTopics(c.Name, c.Topics); err != nil {
		return err
	}
	switch {
	case c.MaxAttempts < 0, c.BatchSize < 0, c.BatchSize > 10_000:
		return errors.New("outbox: RelayConfig: MaxAttempts is not negative, and BatchSize is up to 10,000")
	case c.MaxInHand < 0:
		return errors.New("outbox: RelayConfig: MaxInHand is negative")
	case c.Streams < 0, c.Streams > store.Lanes:
		return fmt.Errorf("outbox: RelayConfig: Streams is between 1 and %d", store.Lanes)
	case c.Poll > 10*time.Second:
		return errors.New("outbox: RelayConfig: Poll is 10 seconds at most")
	}
	orElse(&c.MaxAttempts, 10)
	orElse(&c.MinPause, 500*time.Millisecond)
	orElse(&c.MaxPause, max(5*time.Minute, c.MinPause))
	orElse(&c.BatchSize, 1000)
	orElse(&c.MaxInHand, 256<<20)
	orElse(&c.Poll, time.Second)
	orElse(&c.PublishTimeout, 30*time.Second)
	orElse(&c.Drain, 5*time.Second)
	orElse(&c.Streams, 1)
	if c.MaxPause < c.MinPause {
		return errors.New("outbox: RelayConfig: MaxPause is less than MinPause")
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if checked, ok := c.Sealer.(interface{ Check() error }); ok {
		return checked.Check()
	}
	return nil
}

// octetsAtATime is what is read at a time, however many messages that is.
const octetsAtATime = 16 << 20

// octetsAtATime is less with little memory.
func (c *RelayConfig) octetsAtATime() int64 {
	return int64(min(octetsAtATime, max(c.MaxInHand/(8*c.Streams), 1)))
}

func orElse[T comparable](value *T, otherwise T) {
	var zero T
	if *value == zero {
		*value = otherwise
	}
}
