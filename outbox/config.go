package outbox

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/db"
)

// RelayConfig configures a Relay. The zero value is valid.
type RelayConfig struct {
	// Name and Topics divide an outbox among several relays, such as the relays of two services with
	// one database, or of one service with two brokers. Each of Topics is a topic, or a prefix
	// followed by *. The database records Topics under Name. A relay without Topics publishes every
	// topic that is recorded for no other relay. Run returns ErrTopicTaken if one of the Topics is
	// recorded under another Name.
	//
	// When a rollout changes the Topics of a Name, the running relay keeps the old Topics until its
	// process ends. The relay that takes over then uses the Topics of its own configuration. To move a
	// topic to another Name, first remove the topic from the Topics of its present relay. ForgetRelay
	// removes a Name and its recorded topics.
	Name   string
	Topics []string

	// MaxAttempts is the number of failed attempts after which a message is dead-lettered. The default
	// is 10. An attempt counts if the Publisher has named the message in a PublishError. After errors
	// that name no message, the relay publishes messages one by one, and an attempt counts if a
	// message fails while others succeed: see Publisher. No attempt counts while a destination is
	// unavailable.
	MaxAttempts int

	// MaxOutage is how long a message may wait for an unavailable destination before it is
	// dead-lettered with the class "unavailable". The time counts from Add, or from NotBefore if that
	// is later. Before the relay dead-letters a message, it must itself have found the destination
	// unavailable for an hour without an interruption, or for MaxOutage if that is less. The default
	// is no limit.
	MaxOutage time.Duration

	// MinPause and MaxPause bound the backoff of a message after a failed attempt. The backoff doubles
	// from one attempt to the next. The defaults are half a second and 5 minutes. The backoff of an
	// unavailable destination is at least MinPause. It is at most 30 seconds, or MaxPause if that is
	// less.
	MinPause, MaxPause time.Duration

	// BatchSize is the maximum number of messages in a call of the Publisher: up to 10,000, by default
	// 1,000. A read of the outbox fetches as many rows for each stream. It fetches up to 32 times as
	// many while it has to skip most of the rows, for example because their destinations have no room.
	// The relay reads the next batch while a call is in progress. It removes published messages within
	// 50 ms after their call. If the process dies before the removal, they are published again.
	BatchSize int

	// MaxInHand bounds the bytes of payloads and headers in memory if the Publisher is a Divider. The
	// limit covers the queues and calls of all destinations and streams together; one message may
	// exceed the limit. A destination that has a message in memory may use 1/32 of the free memory, so
	// that its large messages block no other destination. The default is 256 MiB. A read returns new
	// messages of up to an eighth of MaxInHand, divided by the number of streams, and at most 16 MiB.
	// It also returns messages that are due for a retry, up to the same number of bytes again.
	MaxInHand int

	// Poll is the maximum pause between two reads of an empty outbox. The pause is 50 ms at first, and
	// grows up to Poll. The default of Poll is a second, its maximum 10 seconds.
	Poll time.Duration

	// PublishTimeout is the time after which the context of a call of the Publisher ends. The
	// default is 30 seconds.
	PublishTimeout time.Duration

	// Drain is how long calls in progress may continue after the context of Run is done. The default
	// is 5 seconds. Then Run cancels the calls, waits up to 5 seconds for them to return, and takes up
	// to 5 seconds to store their outcomes.
	Drain time.Duration

	// Streams is the number of parts of the outbox that are relayed concurrently, each by one process
	// at a time. All messages of a key are in the same stream. The default is 1, the maximum 16. More
	// streams help if the Publisher is slow, but each stream polls the table. If processes have
	// different values, a stream waits until no other process relays a part of it.
	Streams int

	// Retention is how long a published message stays in the table idem.published before package purge
	// deletes it. By default the table keeps no published messages.
	Retention time.Duration

	// Sealer encrypts the payloads and headers of dead letters. If it is set, idem.published stores
	// neither payloads nor headers. The relay never encrypts messages in the outbox, because it is
	// about to publish them.
	Sealer idem.Sealer

	// OnDead, if it is not nil, is called for every message that has become a dead letter. The stream
	// of the message begins no other call of the Publisher until OnDead has returned.
	OnDead func(DeadLetter)

	// Observer, if it is not nil, is notified of every call of the Publisher.
	Observer RelayObserver

	// Logger logs errors that no function returns. The default is slog.Default().
	Logger *slog.Logger
}

// set checks c and sets the defaults.
func (c *RelayConfig) set() error {
	for _, d := range []time.Duration{
		c.MinPause, c.MaxPause, c.Poll, c.PublishTimeout, c.Drain, c.Retention, c.MaxOutage,
	} {
		if d < 0 {
			return errors.New("outbox: RelayConfig: a duration is negative")
		}
	}
	if err := checkTopics(c.Name, c.Topics); err != nil {
		return err
	}
	c.Topics = slices.Sorted(slices.Values(c.Topics)) // sorted, because Topics is compared as a set
	switch {
	case c.MaxAttempts < 0:
		return errors.New("outbox: RelayConfig: MaxAttempts is negative")
	case c.BatchSize < 0, c.BatchSize > 10_000:
		return errors.New("outbox: RelayConfig: BatchSize must be between 1 and 10,000")
	case c.MaxInHand < 0:
		return errors.New("outbox: RelayConfig: MaxInHand is negative")
	case c.Streams < 0, c.Streams > db.Lanes:
		return fmt.Errorf("outbox: RelayConfig: Streams must be between 1 and %d", db.Lanes)
	case c.Poll > 10*time.Second:
		return errors.New("outbox: RelayConfig: Poll must be at most 10 seconds")
	}
	c.MaxAttempts = cmp.Or(c.MaxAttempts, 10)
	c.MinPause = cmp.Or(c.MinPause, 500*time.Millisecond)
	c.MaxPause = cmp.Or(c.MaxPause, max(5*time.Minute, c.MinPause))
	c.BatchSize = cmp.Or(c.BatchSize, 1000)
	c.MaxInHand = cmp.Or(c.MaxInHand, 256<<20)
	c.Poll = cmp.Or(c.Poll, time.Second)
	c.PublishTimeout = cmp.Or(c.PublishTimeout, 30*time.Second)
	c.Drain = cmp.Or(c.Drain, 5*time.Second)
	c.Streams = cmp.Or(c.Streams, 1)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	if c.MaxPause < c.MinPause {
		return errors.New("outbox: RelayConfig: MaxPause is less than MinPause")
	}
	if checked, ok := c.Sealer.(interface{ Check() error }); ok {
		return checked.Check()
	}
	return nil
}

// checkTopics returns what is wrong with the Name and Topics of a relay.
func checkTopics(name string, topics []string) error {
	switch {
	case name == "" && len(topics) > 0, name != "" && len(topics) == 0:
		return errors.New("outbox: RelayConfig: Name and Topics must be set together")
	case len(name) > MaxName || !isStorable(name):
		return fmt.Errorf("outbox: RelayConfig: Name must be valid UTF-8 of at most %d bytes", MaxName)
	}
	for i, topic := range topics {
		switch {
		case topic == "", len(topic) > MaxName, !isStorable(topic), strings.Contains(topic[:len(topic)-1], "*"):
			return fmt.Errorf("outbox: RelayConfig: Topics: %q is neither a topic nor a prefix that ends in *", topic)
		case slices.ContainsFunc(topics[:i], func(other string) bool { return overlap(other, topic) }):
			return fmt.Errorf("outbox: RelayConfig: Topics: %q overlaps another of the Topics", topic)
		}
	}
	return nil
}

// maxReadBytes bounds the bytes of payloads and headers that one read returns.
const maxReadBytes = 16 << 20

// readBytes returns the maximum number of bytes in a read of one stream: maxReadBytes, or less if
// MaxInHand is small.
func (c *RelayConfig) readBytes() int64 {
	return int64(min(maxReadBytes, max(c.MaxInHand/(8*c.Streams), 1)))
}
