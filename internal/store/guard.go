package store

import (
	"strconv"
	"strings"

	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/roundtrip"
)

// StandGuard makes a session one of the guards of the database, if one is wanted.
type StandGuard struct{ Slot int } // which the session has as a guard; 0 if it is none

// Queue adds the statement.
func (g *StandGuard) Queue(trip *roundtrip.Trip) {
	q := db.StandGuard{Slot: g.Slot}
	q.Queue(trip)
}

// Read reads the answer.
func (g *StandGuard) Read(trip *roundtrip.Trip) {
	var q db.StandGuard
	if q.Read(trip); q.Found {
		g.Slot = q.Row.Slot
	}
}

// ListOwners tells who owns operations that are under way.
type ListOwners struct {
	Instance int // that is left out

	Owners    []int // that are there
	Abandoned bool  // one is not there
}

// Queue adds the statement.
func (l *ListOwners) Queue(trip *roundtrip.Trip) {
	q := db.ListOwners{Instance: l.Instance}
	q.Queue(trip)
}

// Read reads the answer.
func (l *ListOwners) Read(trip *roundtrip.Trip) {
	var q db.ListOwners
	q.Read(trip)
	l.Owners, l.Abandoned = listed(q.Row.Owners), q.Row.Abandoned
}

// SeeGone tells which instances do not hold the lock on their number any more.
type SeeGone struct {
	Instances []int

	Gone []int
}

// Queue adds the statement.
func (s *SeeGone) Queue(trip *roundtrip.Trip) {
	q := db.SeeGone{Instances: numbers(s.Instances)}
	q.Queue(trip)
}

// Read reads the answer.
func (s *SeeGone) Read(trip *roundtrip.Trip) {
	var q db.SeeGone
	q.Read(trip)
	s.Gone = listed(q.Row.Gone)
}

// listed reads numbers that are divided by commas.
func listed(text string) []int {
	var all []int
	for each := range strings.SplitSeq(text, ",") {
		if n, err := strconv.Atoi(each); err == nil {
			all = append(all, n)
		}
	}
	return all
}
