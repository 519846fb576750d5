package store

import (
	"time"

	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/roundtrip"
)

// RedriveMessage makes a dead letter a message again.
type RedriveMessage struct {
	Consumer string
	MessageID

	Known bool // there is such a dead letter
}

// Queue adds the statement.
func (r *RedriveMessage) Queue(trip *roundtrip.Trip) {
	q := db.RedriveMessage{Consumer: r.Consumer, Source: r.Source, ID: r.ID}
	q.Queue(trip)
}

// Read reads the answer.
func (r *RedriveMessage) Read(trip *roundtrip.Trip) {
	var q db.RedriveMessage
	q.Read(trip)
	r.Known = q.Row.Known
}

// DropMessage removes a dead letter.
type DropMessage struct {
	Consumer string
	MessageID

	Known bool // there was such a dead letter
}

// Queue adds the statement.
func (d *DropMessage) Queue(trip *roundtrip.Trip) {
	q := db.DropMessage{Consumer: d.Consumer, Source: d.Source, ID: d.ID}
	q.Queue(trip)
}

// Read reads the answer.
func (d *DropMessage) Read(trip *roundtrip.Trip) {
	var q db.DropMessage
	q.Read(trip)
	d.Known = q.Row.Known
}

// MessageRedrives reads redriven messages that are due.
type MessageRedrives struct {
	Consumer string
	Room     int
	MaxBytes int64 // of payloads; the first message is read however large it is

	Redrives []MessageRedrive
}

// MessageRedrive is a dead letter that is to be tried again, as it is stored.
type MessageRedrive struct {
	MessageID
	Key      string
	Type     string
	Contents Contents
}

// Queue adds the statement.
func (r *MessageRedrives) Queue(trip *roundtrip.Trip) {
	q := db.MessageRedrives{Consumer: r.Consumer, Room: r.Room, MaxBytes: r.MaxBytes}
	q.Queue(trip)
}

// Read reads the answer.
func (r *MessageRedrives) Read(trip *roundtrip.Trip) {
	var q db.MessageRedrives
	q.Each(trip, func(row *db.MessageRedrivesRow) {
		r.Redrives = append(r.Redrives, MessageRedrive{
			MessageID: MessageID{row.Source, row.ID}, Key: row.Key, Type: row.Type,
			Contents: Contents{Payload: row.Payload, Headers: row.Headers, SealedBy: row.SealedBy},
		})
	})
}

// ForgetRedrives removes dead letters that were tried again, and are handled.
type ForgetRedrives struct{ Messages *Messages }

// Queue adds the statement.
func (f ForgetRedrives) Queue(trip *roundtrip.Trip) {
	m := f.Messages
	db.ForgetRedrives{Sources: m.sources, IDs: m.ids, Consumer: m.consumer}.Queue(trip)
}

// Read reads the answer.
func (ForgetRedrives) Read(trip *roundtrip.Trip) { trip.Skip() }

// InboxStats tells what consumers have yet to handle.
type InboxStats struct {
	Consumers []ConsumerStats
}

// ConsumerStats tells of one consumer.
type ConsumerStats struct {
	Consumer     string
	Failing      int
	FailingSince time.Time
	Dead         int
	DiedAt       time.Time // the first one
}

// Queue adds the statement.
func (s *InboxStats) Queue(trip *roundtrip.Trip) {
	var q db.InboxStats
	q.Queue(trip)
}

// Read reads the answer.
func (s *InboxStats) Read(trip *roundtrip.Trip) {
	var q db.InboxStats
	q.Each(trip, func(row *db.InboxStatsRow) {
		s.Consumers = append(s.Consumers, ConsumerStats{
			Consumer: row.Consumer, Failing: int(row.Failing), FailingSince: row.FailingSince, Dead: int(row.Dead), DiedAt: row.DiedAt,
		})
	})
}
