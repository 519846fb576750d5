package store

import (
	"encoding/json"

	"github.com/idem-go/idem/internal/roundtrip"
)

// SeeTopics tells of which generation the topics of all relays are.
type SeeTopics struct{ Generation int64 }

// Queue adds the statement.
func (s *SeeTopics) Queue(trip *roundtrip.Trip) { trip.Add(seeTopics) }

// Read reads the answer.
func (s *SeeTopics) Read(trip *roundtrip.Trip) {
	trip.Row(func(row *roundtrip.Row) { s.Generation = int64(row.Int()) })
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
func (l *ListTopics) Queue(trip *roundtrip.Trip) { trip.Add(listTopics) }

// Read reads the answer.
func (l *ListTopics) Read(trip *roundtrip.Trip) {
	trip.Rows(func(row *roundtrip.Row) {
		var r RelayTopics
		r.Relay = row.Text()
		row.Fail(json.Unmarshal([]byte(row.Text()), &r.Topics))
		r.Generation, r.Fresh = int64(row.Int()), row.Bool()
		l.Relays = append(l.Relays, r)
	})
}

// LockTopics lets one relay at a time change what is on record, until its transaction is over.
type LockTopics struct{}

// Queue adds the statement.
func (LockTopics) Queue(trip *roundtrip.Trip) { trip.Add(lockTopics) }

// Read reads the answer.
func (LockTopics) Read(trip *roundtrip.Trip) { trip.Skip() }

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
	trip.Add(recordTopics, []byte(r.Relay), array(r.Topics), integer(r.Seen))
}

// Read reads the answer.
func (r *RecordTopics) Read(trip *roundtrip.Trip) {
	trip.Rows(func(row *roundtrip.Row) { r.Recorded, r.Generation = true, int64(row.Int()) })
}

// ForgetTopics takes the topics of a relay from it.
type ForgetTopics struct {
	Relay string

	Known bool
}

// Queue adds the statement.
func (f *ForgetTopics) Queue(trip *roundtrip.Trip) { trip.Add(forgetTopics, []byte(f.Relay)) }

// Read reads the answer.
func (f *ForgetTopics) Read(trip *roundtrip.Trip) {
	trip.Rows(func(row *roundtrip.Row) {
		f.Known = true
		row.Skip()
	})
}

// SeeOutdated tells whether no relay of another name, which is there, works by topics of before a generation.
type SeeOutdated struct {
	Relay      string
	Generation int64

	None bool
}

// Queue adds the statement.
func (s *SeeOutdated) Queue(trip *roundtrip.Trip) {
	trip.Add(seeOutdated, []byte(s.Relay), integer(s.Generation))
}

// Read reads the answer.
func (s *SeeOutdated) Read(trip *roundtrip.Trip) {
	trip.Row(func(row *roundtrip.Row) { s.None = row.Bool() })
}
