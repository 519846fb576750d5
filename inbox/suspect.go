package inbox

import (
	"context"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/idem-go/idem/internal/store"
)

// A message whose attempts were announced and have not told how they ended is a suspect: it, or one that was with it, has killed its
// process. Suspects are tried in groups that get smaller with each such attempt, until they are tried alone. So what a thousand
// messages are suspected of takes a few transactions to refute, and the guilty one is alone after a few deaths. What a message
// did not survive in company proves nothing against it: it is a dead letter only for attempts that it made alone.

// solitary is the suspicion from which on a message is tried alone.
const solitary = 4

// suspicionOf is how much there is to suspect a message of. Who has died alone is not put together with others again.
func suspicionOf(k *store.KnownMessage) int {
	if k.Alone > 0 {
		return solitary + k.Alone
	}
	return min(k.Begun, solitary)
}

// groupSize is how many of n equally suspected messages are tried together: all that are not suspected, then an eighth of them, and
// at most 128, 16 and 2.
func groupSize(suspicion, n int) int {
	if suspicion == 0 {
		return n
	}
	return max(1, min(n/8, 1024>>(3*suspicion)))
}

// arrange puts messages into groups that are tried one after the other: first those that are not suspected, then those that are
// suspected least. In order, a message stays behind those of its key that come before it, however much they are suspected.
func arrange(round []*delivery, ordered bool) (groups [][]*delivery) {
	for len(round) > 0 {
		equals := map[int][]*delivery{}
		most := map[keyOf]int{} // how much those before it are suspected
		var later []*delivery
		for _, d := range round {
			if key, ok := d.key(); ok && ordered {
				if d.suspicion < most[key] {
					later, most[key] = append(later, d), math.MaxInt
					continue
				}
				most[key] = d.suspicion
			}
			equals[d.suspicion] = append(equals[d.suspicion], d)
		}
		for _, suspicion := range slices.Sorted(maps.Keys(equals)) {
			group := equals[suspicion]
			groups = slices.AppendSeq(groups, slices.Chunk(group, groupSize(suspicion, len(group))))
		}
		round = later
	}
	return groups
}

// turns has room for one group of suspects in the process: it is the process that a message kills, with all that is under way
// in it.
var turns = make(chan struct{}, 1)

// turn waits until no other suspects are under way, and returns how to let others have their turn.
func turn(ctx context.Context, patience time.Duration) (over func(), err error) {
	over = func() { <-turns }
	select {
	case turns <- struct{}{}:
		return over, nil // one that is free is not refused, however little patience is left
	default:
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case turns <- struct{}{}:
		return over, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-timer.C:
		return nil, ErrSuspected
	}
}
