package store

import (
	"strconv"
	"strings"
	"time"

	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/roundtrip"
)

// StandGuard makes a session one of the guards of the database, if one is wanted.
type StandGuard struct {
	Slot      int // which the session has as a guard; 0 if it is none
	Processes int // that have a session
}

// Queue adds the statement.
func (g *StandGuard) Queue(trip *roundtrip.Trip) {
	q := db.StandGuard{Slot: g.Slot}
	q.Queue(trip)
}

// Read reads the answer.
func (g *StandGuard) Read(trip *roundtrip.Trip) {
	var q db.StandGuard
	if q.Read(trip); q.Found {
		g.Slot, g.Processes = q.Row.Slot, q.Row.Processes
	}
}

// WatchRoom is how many operations that are due a guard reads at most.
const WatchRoom = 10_000

// Watch tells a guard what there is to watch.
type Watch struct {
	Instance int // the guard's own

	Owners    []int    // other instances that own operations under way, and have a session
	Busy      bool     // an operation is under way, of whatever instance
	Names     []string // of the operations that are due and that no process works on
	More      bool     // there may be others
	Guards    int
	Processes int
	WatchedAt time.Time
}

// Queue adds the statement.
func (w *Watch) Queue(trip *roundtrip.Trip) {
	q := db.Watch{Instance: w.Instance, Room: WatchRoom}
	q.Queue(trip)
}

// Read reads the answer.
func (w *Watch) Read(trip *roundtrip.Trip) {
	var q db.Watch
	q.Read(trip)
	w.Owners, w.Busy, w.More = listed(q.Row.Owners), q.Row.Busy, q.Row.More
	w.Guards, w.Processes, w.WatchedAt = q.Row.Guards, q.Row.Processes, q.Row.WatchedAt
	if q.Row.Names != "" {
		w.Names = strings.Split(q.Row.Names, "\n")
	}
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
