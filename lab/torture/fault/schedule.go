package fault

import (
	"slices"
	"time"
)

// Schedule is what is injected one after the other by one [Run], or by one leg.
type Schedule struct {
	Kinds []Name
	// AtMost is the longest time in which none of them need strike, however slow the machine: every one that can be under
	// way takes all the time that it has, and some of those that follow find nothing to break.
	AtMost time.Duration
}

// Schedule says what Run does with the mix. It needs no cluster.
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

// Longest is the longest time between from and until in which no fault of the schedule struck.
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
