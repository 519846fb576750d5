package store

import (
	"strconv"
	"strings"
	"time"

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
type Messages struct{ consumer, sources, ids, hashes []byte }

// NewMessages returns a group of n messages, which get tells one by one.
func NewMessages(consumer string, n int, get func(i int) (MessageID, [32]byte)) *Messages {
	m := &Messages{consumer: []byte(consumer), hashes: make([]byte, 0, n*32)}
	m.sources, m.ids = append(m.sources, '{'), append(m.ids, '{')
	for i := range n {
		id, hash := get(i)
		if i > 0 {
			m.sources, m.ids = append(m.sources, ','), append(m.ids, ',')
		}
		m.sources, m.ids = appendElement(m.sources, id.Source), appendElement(m.ids, id.ID)
		m.hashes = append(m.hashes, hash[:]...)
	}
	m.sources, m.ids = append(m.sources, '}'), append(m.ids, '}')
	return m
}

// appendElement writes a text as an element of an array of Postgres.
func appendElement(array []byte, text string) []byte {
	array = append(array, '"')
	if strings.ContainsAny(text, `\"`) {
		text = inArray.Replace(text)
	}
	return append(append(array, text...), '"')
}

// BeginMessages begins a transaction that handles messages.
type BeginMessages struct {
	OperationID string
	Patience    time.Duration // for each lock that the statements up to Calm wait for

	Previous string // the claim that the transaction had made before
}

// Queue adds the statement.
func (b *BeginMessages) Queue(trip *roundtrip.Trip) {
	trip.Add(beginMessages, []byte(b.OperationID), strconv.AppendInt(nil, b.Patience.Milliseconds(), 10))
}

// Read reads the answer.
func (b *BeginMessages) Read(trip *roundtrip.Trip) {
	trip.Row(func(row *roundtrip.Row) { b.Previous = row.Text("") })
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
	trip.Add(claimMessages, m.consumer, m.hashes, microseconds(c.Retention), m.sources, m.ids)
}

// Read reads the answer.
func (c *ClaimMessages) Read(trip *roundtrip.Trip) {
	source := ""
	trip.Rows(func(row *roundtrip.Row) {
		source = row.Text(source)
		c.Claimed = append(c.Claimed, MessageID{source, row.Text()})
		c.At = row.Time()
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
	Attempts int
	Begun    int           // attempts that have not told how they ended, together with others
	Alone    int           // and alone
	Hindered int           // that something else has hindered
	Pause    time.Duration // until the next attempt is due
	Since    time.Time
}

// Queue adds the statement.
func (l *LoadMessages) Queue(trip *roundtrip.Trip) {
	m := l.Messages
	trip.Add(loadMessages, m.sources, m.ids, m.hashes, m.consumer)
}

// Read reads the answer.
func (l *LoadMessages) Read(trip *roundtrip.Trip) {
	trip.Rows(func(row *roundtrip.Row) {
		k := KnownMessage{MessageID: MessageID{row.Text(), row.Text()}, SameHash: row.Bool()}
		k.State = row.Text(MessageHandled, MessageFailing, MessageDead)
		k.Attempts, k.Begun, k.Alone, k.Hindered = row.Int(), row.Int(), row.Int(), row.Int()
		k.Pause, k.Since = time.Duration(row.Int())*time.Microsecond, row.Time()
		l.Known = append(l.Known, k)
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
	trip.Add(resumeMessages, microseconds(r.Retention), m.sources, m.ids, m.consumer)
}

// Read reads the answer.
func (r *ResumeMessages) Read(trip *roundtrip.Trip) {
	trip.Rows(func(row *roundtrip.Row) {
		r.Resumed = append(r.Resumed, MessageID{row.Text(), row.Text()})
		r.At = row.Time()
	})
}

// KeepMessages goes ahead of COMMIT. If this is not the transaction that has claimed, the server answers with the SQLSTATE Gone.
type KeepMessages struct {
	OperationID string

	Kept bool
}

// Queue adds the statement.
func (k *KeepMessages) Queue(trip *roundtrip.Trip) { trip.Add(keepMessages, []byte(k.OperationID)) }

// Read reads the answer.
func (k *KeepMessages) Read(trip *roundtrip.Trip) {
	k.Kept = trip.Row(func(row *roundtrip.Row) { row.Skip() })
}

// ReleaseMessages forgets what was claimed at a moment, and committed by whoever was not to.
type ReleaseMessages struct {
	Messages *Messages
	At       time.Time
}

// Queue adds the statement.
func (r ReleaseMessages) Queue(trip *roundtrip.Trip) {
	m := r.Messages
	at := append(strconv.AppendInt(nil, r.At.UnixMicro(), 10), " microseconds"...)
	trip.Add(releaseMessages, m.sources, m.ids, m.consumer, at)
}

// Read reads the answer.
func (ReleaseMessages) Read(trip *roundtrip.Trip) { trip.Skip() }
