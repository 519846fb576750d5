package store

import (
	"strconv"
	"strings"

	"github.com/idem-go/idem/internal/roundtrip"
)

// StandGuard makes a session one of the guards of the database, if one is wanted.
type StandGuard struct{ Slot int } // which the session has as a guard; 0 if it is none

// Queue adds the statement.
func (g *StandGuard) Queue(trip *roundtrip.Trip) { trip.Add(standGuard, number(g.Slot)) }

// Read reads the answer.
func (g *StandGuard) Read(trip *roundtrip.Trip) {
	trip.Row(func(row *roundtrip.Row) { g.Slot = row.Int() })
}

// ListOwners tells who owns operations that are under way.
type ListOwners struct {
	Instance int // that is left out

	Owners    []int // that are there
	Abandoned bool  // one is not there
}

// Queue adds the statement.
func (l *ListOwners) Queue(trip *roundtrip.Trip) { trip.Add(listOwners, number(l.Instance)) }

// Read reads the answer.
func (l *ListOwners) Read(trip *roundtrip.Trip) {
	trip.Row(func(row *roundtrip.Row) { l.Owners, l.Abandoned = listed(row.Text()), row.Bool() })
}

// SeeGone tells which instances do not hold the lock on their number any more.
type SeeGone struct {
	Instances []int

	Gone []int
}

// Queue adds the statement.
func (s *SeeGone) Queue(trip *roundtrip.Trip) {
	trip.Add(seeGone, numbers(s.Instances))
}

// Read reads the answer.
func (s *SeeGone) Read(trip *roundtrip.Trip) {
	trip.Row(func(row *roundtrip.Row) { s.Gone = listed(row.Text()) })
}

// StandDown leaves the place of a guard to others.
type StandDown struct{ Slot int }

// Queue adds the statement.
func (s StandDown) Queue(trip *roundtrip.Trip) { trip.Add(standDown, number(s.Slot)) }

// Read reads the answer.
func (StandDown) Read(trip *roundtrip.Trip) { trip.Skip() }

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
