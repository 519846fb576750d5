package store

import (
	"encoding/json"

	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/roundtrip"
)

// SeeTopics tells of which generation the topics of all relays are.
type SeeTopics struct{ Generation int64 }

// Queue adds the statement.
func (s *SeeTopics) Queue(trip *roundtrip.Trip) {
	var q db.SeeTopics
	q.Queue(trip)
}

// Read reads the answer.
func (s *SeeTopics) Read(trip *roundtrip.Trip) {
	var q db.SeeTopics
	q.Read(trip)
	s.Generation = q.Row.Generation
}

// RelayTopics are the topics of a relay.
type RelayTopics struct {
	Relay      string
	Topics     []string
	Generation int64
	Fresh      bool // they were recorded just now
}

// ListTopics reads the topics of each relay that has some of its own.
type ListTopics struct{ Relays []RelayTopics }

// Queue adds the statement.
func (l *ListTopics) Queue(trip *roundtrip.Trip) {
	var q db.ListTopics
	q.Queue(trip)
}

// Read reads the answer.
func (l *ListTopics) Read(trip *roundtrip.Trip) {
	var q db.ListTopics
	q.Each(trip, func(row *db.ListTopicsRow) {
		r := RelayTopics{Relay: row.Relay, Generation: row.Generation, Fresh: row.Fresh}
		trip.Fail(json.Unmarshal([]byte(row.Topics), &r.Topics))
		l.Relays = append(l.Relays, r)
	})
}

// RecordTopics records the topics of a relay, if they are still of the generation that it has seen.
type RecordTopics struct {
	Relay  string
	Topics []string
	Seen   int64

	Recorded   bool
	Generation int64
}

// Queue adds the statement.
func (r *RecordTopics) Queue(trip *roundtrip.Trip) {
	q := db.RecordTopics{Relay: r.Relay, Topics: array(r.Topics), Seen: r.Seen}
	q.Queue(trip)
}

// Read reads the answer.
func (r *RecordTopics) Read(trip *roundtrip.Trip) {
	var q db.RecordTopics
	q.Each(trip, func(row *db.RecordTopicsRow) { r.Recorded, r.Generation = true, row.Generation })
}

// ForgetTopics takes the topics of a relay from it.
type ForgetTopics struct {
	Relay string

	Known bool
}

// Queue adds the statement.
func (f *ForgetTopics) Queue(trip *roundtrip.Trip) {
	q := db.ForgetTopics{Relay: f.Relay}
	q.Queue(trip)
}

// Read reads the answer.
func (f *ForgetTopics) Read(trip *roundtrip.Trip) {
	var q db.ForgetTopics
	q.Each(trip, func(*db.ForgetTopicsRow) { f.Known = true })
}

// SeeOutdated tells whether no relay of another name, which is there, works by topics of before a generation.
type SeeOutdated struct {
	Relay      string
	Generation int64

	None bool
}

// Queue adds the statement.
func (s *SeeOutdated) Queue(trip *roundtrip.Trip) {
	q := db.SeeOutdated{Relay: s.Relay, Generation: s.Generation}
	q.Queue(trip)
}

// Read reads the answer.
func (s *SeeOutdated) Read(trip *roundtrip.Trip) {
	var q db.SeeOutdated
	q.Read(trip)
	s.None = q.Row.None
}
