package store

import (
	"time"

	"github.com/idem-go/idem/internal/roundtrip"
)

// RedriveMessage lets a dead letter be tried again.
type RedriveMessage struct {
	Consumer string
	MessageID

	Known bool // there is such a dead letter
}

// Queue adds the statement.
func (r *RedriveMessage) Queue(trip *roundtrip.Trip) {
	trip.Add(redriveMessage, []byte(r.Consumer), []byte(r.Source), []byte(r.ID))
}

// Read reads the answer.
func (r *RedriveMessage) Read(trip *roundtrip.Trip) {
	trip.Row(func(row *roundtrip.Row) { r.Known = row.Bool() })
}

// RedrivenMessages reads the dead letters that are to be tried again.
type RedrivenMessages struct {
	Consumer string
	Room     int

	Redriven []RedrivenMessage
}

// RedrivenMessage is a dead letter that is to be tried again, as it is stored.
type RedrivenMessage struct {
	MessageID
	Key      string
	Type     string
	Contents Contents
}

// Queue adds the statement.
func (r *RedrivenMessages) Queue(trip *roundtrip.Trip) {
	trip.Add(redrivenMessages, []byte(r.Consumer), number(r.Room))
}

// Read reads the answer.
func (r *RedrivenMessages) Read(trip *roundtrip.Trip) {
	trip.Rows(func(row *roundtrip.Row) {
		var m RedrivenMessage
		m.Source, m.ID, m.Key, m.Type = row.Text(), row.Text(), row.Text(), row.Text()
		m.Contents = Contents{Payload: row.Bytes(), Headers: row.Text(), SealedBy: row.Text()}
		r.Redriven = append(r.Redriven, m)
	})
}

// ForgetRedriven removes dead letters that were tried again, and are handled.
type ForgetRedriven struct{ Messages *Messages }

// Queue adds the statement.
func (f ForgetRedriven) Queue(trip *roundtrip.Trip) {
	m := f.Messages
	trip.Add(forgetRedriven, m.sources, m.ids, m.consumer)
}

// Read reads the answer.
func (ForgetRedriven) Read(trip *roundtrip.Trip) { trip.Skip() }

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
func (s *InboxStats) Queue(trip *roundtrip.Trip) { trip.Add(inboxStats) }

// Read reads the answer.
func (s *InboxStats) Read(trip *roundtrip.Trip) {
	trip.Rows(func(row *roundtrip.Row) {
		var c ConsumerStats
		c.Consumer, c.Failing, c.FailingSince, c.Dead, c.DiedAt = row.Text(), row.Int(), row.Time(), row.Int(), row.Time()
		s.Consumers = append(s.Consumers, c)
	})
}
