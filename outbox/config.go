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
	// Name and Topics divide an outbox among several relays, such as those of two services with one
	// database, or of one service with two brokers. Each of Topics is a topic, or a prefix that
	// ends in *. The database records them under Name. A relay without Topics publishes every topic
	// that no recorded relay has. Run returns ErrTopicTaken if another Name has one of the Topics.
	//
	// When a rollout changes the Topics of a Name, a process that relays keeps its own Topics until
	// it ends, and the next one uses its own. To move a topic to another Name, first remove it from
	// the Topics of the relay that has it. ForgetRelay removes a Name.
	Name   string
	Topics []string

	// MaxAttempts is the number of failed attempts after which a message is dead-lettered. The
	// default is 10. An attempt counts if the Publisher has named the message, or has refused it in
	// a round of single calls in which it has accepted another: see Publisher. Nothing counts while
	// a destination is unavailable.
	MaxAttempts int

	// MaxOutage is how long a message may wait for an unavailable destination, from its Add, before
	// it is dead-lettered with the class "unavailable". This relay must also have found the
	// destination unavailable for an hour without an interruption, or for MaxOutage if that is
	// less. The default is no limit.
	MaxOutage time.Duration

	// MinPause and MaxPause bound the backoff of a message after a failed attempt, which doubles
	// from one attempt to the next. The defaults are half a second and 5 minutes. The backoff of an
	// unavailable destination is at least MinPause, and at most 30 seconds, or MaxPause if that is
	// less.
	MinPause, MaxPause time.Duration

	// BatchSize is the maximum number of messages in a call of the Publisher and in a read: up to
	// 10,000, by default 1,000. The relay reads the next batch while a call is in progress. It removes
	// published messages within 50 ms after their call; if the process dies before, they are
	// published again.
	BatchSize int

	// MaxInHand bounds the bytes of payloads and headers in memory if the Publisher is a Divider:
	// in the queues and calls of all destinations and streams together, plus one message. A
	// destination uses at most a thirty-second of the free memory, so that its large messages block
	// no other. The default is 256 MiB. A read returns new messages of up to an eighth of
	// MaxInHand, divided among the streams, and at most 16 MiB. It returns retries up to the same
	// limit in addition.
	MaxInHand int

	// Poll is the maximum time between two reads of an empty outbox. The first pause is 50 ms. The
	// default is a second, the limit 10 seconds.
	Poll time.Duration

	// PublishTimeout is the time after which the context of a call of the Publisher ends. The
	// default is 30 seconds.
	PublishTimeout time.Duration

	// Drain is how long calls in progress may continue after the context of Run is done. The
	// default is 5 seconds. Run waits up to 5 seconds more for a call that does not return, and
	// then up to 5 seconds to store the last outcomes.
	Drain time.Duration

	// Streams is the number of parts of the outbox that are relayed concurrently, each by one
	// process at a time. The messages of one key are in one stream. The default is 1, the limit 16.
	// More streams help a slow Publisher; each one polls the table. Processes with different values
	// wait for each other.
	Streams int

	// Retention is how long a published message stays in idem.published, from which package purge
	// deletes it. By default published messages are not kept.
	Retention time.Duration

	// Sealer seals the contents of dead letters. With a Sealer, idem.published has neither payloads
	// nor headers. Messages in the outbox are never sealed: they are about to be published.
	Sealer idem.Sealer

	// OnDead is called for every message that has become a dead letter, if it is not nil. Its
	// stream waits for it.
	OnDead func(DeadLetter)

	// Observer is called for every call of the Publisher, if it is not nil.
	Observer RelayObserver

	// Logger is for errors that no function returns. The default is slog.Default().
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
	c.Topics = slices.Sorted(slices.Values(c.Topics)) // topics are compared as a set
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

// maxReadBytes bounds the bytes of payloads and headers of a read.
const maxReadBytes = 16 << 20

// readBytes is the limit of a read of one stream. It is lower than maxReadBytes if MaxInHand is
// small.
func (c *RelayConfig) readBytes() int64 {
	return int64(min(maxReadBytes, max(c.MaxInHand/(8*c.Streams), 1)))
}
