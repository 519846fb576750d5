package store

import (
	"strconv"
	"strings"
	"time"

	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/roundtrip"
)

// The states of a message in idem.inbox.
const (
	MessageHandled = "handled"
	MessageFailing = "failing"
	MessageDead    = "dead"
)

// MessageID is what a message is known by to one consumer.
type MessageID struct{ Source, ID string }

// Messages are a group of messages, as statements carry them. It is made by NewMessages.
type Messages struct {
	consumer, sources, ids string
	hashes                 []byte
}

// NewMessages returns a group of n messages, which get tells one by one.
func NewMessages(consumer string, n int, get func(i int) (MessageID, [32]byte)) *Messages {
	m := &Messages{consumer: consumer, hashes: make([]byte, 0, n*32)}
	var sources, ids strings.Builder
	begin := byte('{')
	for i := range n {
		id, hash := get(i)
		appendElement(&sources, begin, id.Source)
		appendElement(&ids, begin, id.ID)
		m.hashes = append(m.hashes, hash[:]...)
		begin = ','
	}
	m.sources, m.ids = endArray(&sources), endArray(&ids)
	return m
}

// BeginMessages begins a transaction that handles messages.
type BeginMessages struct {
	ExecutionID string
	Patience    time.Duration // for each lock that the statements up to Calm wait for
	Owned       bool          // the transaction is not the caller's: a handler must not PREPARE it

	Previous string // the claim that the transaction had made before
}

// Queue adds the statement.
func (b *BeginMessages) Queue(trip *roundtrip.Trip) {
	q := db.BeginMessages{ExecutionID: b.ExecutionID, Patience: strconv.FormatInt(b.Patience.Milliseconds(), 10), Owned: b.Owned}
	q.Queue(trip)
}

// Read reads the answer.
func (b *BeginMessages) Read(trip *roundtrip.Trip) {
	var q db.BeginMessages
	q.Read(trip)
	b.Previous = q.Row.Previous
}

// ClaimMessages writes down as handled what is new.
type ClaimMessages struct {
	Messages  *Messages
	Retention time.Duration

	Claimed []MessageID
	At      time.Time // of all of them
}

// Queue adds the statement.
func (c *ClaimMessages) Queue(trip *roundtrip.Trip) {
	m := c.Messages
	q := db.ClaimMessages{Consumer: m.consumer, Hashes: m.hashes, Retention: c.Retention, Sources: m.sources, IDs: m.ids}
	q.Queue(trip)
}

// Read reads the answer.
func (c *ClaimMessages) Read(trip *roundtrip.Trip) {
	var q db.ClaimMessages
	q.Each(trip, func(row *db.ClaimMessagesRow) {
		c.Claimed, c.At = append(c.Claimed, MessageID{row.Source, row.ID}), row.Since
	})
}

// LoadMessages reads what is known of messages.
type LoadMessages struct {
	Messages *Messages

	Known []KnownMessage
}

// KnownMessage is what is known of a message.
type KnownMessage struct {
	MessageID
	SameHash bool
	State    string
	Attempts int           // that have failed, or were announced and have no recorded end
	Begun    bool          // the last one was announced and has no recorded end
	Hindered int           // that something else has hindered
	Pause    time.Duration // until the next attempt is due
	Since    time.Time
}

// Queue adds the statement.
func (l *LoadMessages) Queue(trip *roundtrip.Trip) {
	m := l.Messages
	q := db.LoadMessages{Sources: m.sources, IDs: m.ids, Hashes: m.hashes, Consumer: m.consumer}
	q.Queue(trip)
}

// Read reads the answer.
func (l *LoadMessages) Read(trip *roundtrip.Trip) {
	var q db.LoadMessages
	q.Each(trip, func(row *db.LoadMessagesRow) {
		l.Known = append(l.Known, KnownMessage{
			MessageID: MessageID{row.Source, row.ID}, SameHash: row.SameHash, State: row.State,
			Attempts: row.Attempts, Begun: row.Begun, Hindered: row.Hindered,
			Pause: time.Duration(row.Remaining) * time.Microsecond, Since: row.Since,
		})
	})
}

// ResumeMessages writes down as handled those whose next attempt is due.
type ResumeMessages struct {
	Messages  *Messages
	Retention time.Duration

	Resumed []MessageID
	At      time.Time // of all of them
}

// Queue adds the statement.
func (r *ResumeMessages) Queue(trip *roundtrip.Trip) {
	m := r.Messages
	q := db.ResumeMessages{Retention: r.Retention, Sources: m.sources, IDs: m.ids, Consumer: m.consumer}
	q.Queue(trip)
}

// Read reads the answer.
func (r *ResumeMessages) Read(trip *roundtrip.Trip) {
	var q db.ResumeMessages
	q.Each(trip, func(row *db.ResumeMessagesRow) {
		r.Resumed, r.At = append(r.Resumed, MessageID{row.Source, row.ID}), row.Since
	})
}

// KeepMessages goes ahead of COMMIT. If this is not the transaction that has claimed, the server answers with the SQLSTATE Gone.
type KeepMessages struct {
	ExecutionID string

	Kept bool
}

// Queue adds the statement.
func (k *KeepMessages) Queue(trip *roundtrip.Trip) {
	q := db.KeepMessages{ExecutionID: k.ExecutionID}
	q.Queue(trip)
}

// Read reads the answer.
func (k *KeepMessages) Read(trip *roundtrip.Trip) {
	var q db.KeepMessages
	q.Read(trip)
	k.Kept = q.Found
}

// ReleaseMessages forgets what was claimed at a moment, and committed by a call that was not to.
type ReleaseMessages struct {
	Messages *Messages
	At       time.Time
}

// Queue adds the statement.
func (r ReleaseMessages) Queue(trip *roundtrip.Trip) {
	m := r.Messages
	db.ReleaseMessages{Sources: m.sources, IDs: m.ids, Consumer: m.consumer, Claimed: r.At.Sub(time.Unix(0, 0))}.Queue(trip)
}

// Read reads the answer.
func (ReleaseMessages) Read(trip *roundtrip.Trip) { trip.Skip() }
