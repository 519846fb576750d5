package outbox

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/db"
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
	// Publisher has named the message, or has refused it alone in a round in which it has accepted another one: see Publisher.
	// An unavailable destination counts nothing.
	MaxAttempts int

	// MaxOutage is how long a message may wait for an unavailable destination, from when it was added, before it is a dead letter of
	// the class "unavailable". This relay must have found the destination unavailable for an hour without an interruption, or
	// for MaxOutage if that is less. The default is without limit.
	MaxOutage time.Duration

	// MinPause and MaxPause bound the backoff of a message after a failed attempt: it doubles from one attempt to the next. The
	// defaults are half a second and 5 minutes. An unavailable destination has a backoff of its own, from MinPause up to 30 seconds,
	// or up to MaxPause if that is less.
	MinPause, MaxPause time.Duration

	// BatchSize is how many messages a call of the Publisher has at most, and how many the relay reads at a time. The default is
	// 1,000. While a call is under way, the relay reads the next batch, and it removes published messages within 50 ms after
	// their call: they are published again if the process dies before.
	BatchSize int

	// MaxInHand bounds the payloads and headers in memory, in bytes, of a Publisher that is a Divider: in the queues and calls of
	// all destinations and streams together, and one message more. A destination has no more than a thirty-second of what is free,
	// so that large messages of one destination hold up no other. The default is 256 MiB. A read has up to an eighth of it,
	// divided among the streams, 16 MiB at most: of new messages, and as much of messages that are tried again.
	MaxInHand int

	// Poll is how often the outbox is looked at when there is nothing in it: after 50 ms at first, and then up to Poll. The
	// default is a second, the limit 10 seconds.
	Poll time.Duration

	// PublishTimeout is how long a call of the Publisher may take until its context ends. The default is 30 seconds.
	PublishTimeout time.Duration

	// Drain is how long calls that are under way may go on after the end of the context of Run. The default is 5 seconds. A call that
	// does not return is waited for 5 seconds more, and then the outcomes of the last calls have 5 seconds to be written down.
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
	for _, d := range []time.Duration{c.MinPause, c.MaxPause, c.Poll, c.PublishTimeout, c.Drain, c.Retention, c.MaxOutage} {
		if d < 0 {
			return errors.New("outbox: RelayConfig: a duration is negative")
		}
	}
	if err := checkTopics(c.Name, c.Topics); err != nil {
		return err
	}
	c.Topics = slices.Sorted(slices.Values(c.Topics)) // they are a set
	switch {
	case c.MaxAttempts < 0, c.BatchSize < 0, c.BatchSize > 10_000:
		return errors.New("outbox: RelayConfig: MaxAttempts is not negative, and BatchSize is up to 10,000")
	case c.MaxInHand < 0:
		return errors.New("outbox: RelayConfig: MaxInHand is negative")
	case c.Streams < 0, c.Streams > db.Lanes:
		return fmt.Errorf("outbox: RelayConfig: Streams is between 1 and %d", db.Lanes)
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
