package fault

import (
	"slices"
	"time"
)

// Schedule describes the kinds of faults that one [Run] or one leg injects, and their rate.
type Schedule struct {
	Kinds []Name
	// AtMost is the longest time that may pass without a fault, even on a slow machine. It allows
	// for one fault that takes all its time, and then ten that find nothing to break.
	AtMost time.Duration
}

// Schedule returns the schedule of Run with the mix. cluster reports whether there will be a
// cluster; none is needed for this call.
func (m Mix) Schedule(cluster bool) (Schedule, error) {
	kinds, err := m.kinds(cluster)
	if err != nil {
		return Schedule{}, err
	}
	return newSchedule(kinds, m.pause(), injectLimits), nil
}

func newSchedule(kinds []Kind, pause time.Duration, l limits) Schedule {
	const missed = 10
	s := Schedule{AtMost: l.total() + missed*pause}
	for _, k := range kinds {
		s.Kinds = append(s.Kinds, k.Name)
	}
	return s
}

// Longest returns the longest time between from and until in which no fault of the schedule struck.
func (s Schedule) Longest(events []Event, from, until time.Duration) time.Duration {
	struck := []time.Duration{from, until}
	for _, e := range events {
		if slices.Contains(s.Kinds, e.Kind) && e.At > from && e.At < until {
			struck = append(struck, e.At)
		}
	}
	slices.Sort(struck)
	longest := time.Duration(0)
	for i := range struck[1:] {
		longest = max(longest, struck[i+1]-struck[i])
	}
	return longest
}
