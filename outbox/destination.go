package outbox

import (
	"time"

	"github.com/idem-go/idem/internal/txn"
)

// destination is where messages go, and whom no other waits for. A Publisher that is no Divider has one.
type destination struct {
	name   string
	topics []string // of what it has in hand or has left
	caller caller
	pauses txn.Pauses
	rest   time.Time // nothing is published before
	told   time.Time // when the log was told that it is away, zero if it is not
	busy   bool      // a call is under way
	left   int64     // the first place of what was read and not taken, 0 if there is none: nothing else is taken before it is read again
	wants  int       // octets of a message for which there was no memory, 0 if there is none
	most   int       // how many messages a call may have
}

// delivery is what came of a batch at a destination.
type delivery struct {
	to     *destination
	places []int64
	load   load
	took   time.Duration
	did    *outcome
}

// What one destination may have in hand at first, and how many may have something.
const (
	mostAtOnce = 512
	shareOfOne = 128
	shareOfKey = 8 // an eighth of that
	readAgain  = 100 * time.Millisecond
	mostBusy   = 1024 // topics
	worthwhile = 4    // to read again at once, if one of so many messages is taken

	farAhead     = 32                                 // times as much is read in search of a message that goes, or behind many of others
	inHandAtOnce = max(32_000, mostAtOnce*shareOfOne) // messages that a process may have in hand, at most
)

func (to *destination) leave(place int64) {
	if to.left == 0 || place < to.left {
		to.left = place
	}
}

// inDoubt is how long a destination is left alone at most that does not say that it is away: it may be there, and what was tried is bad.
const inDoubt = 1500 * time.Millisecond

// isNews reports whether an error that blames none is to be logged: the first one is, and then one now and then.
func (to *destination) isNews(err error) bool {
	if err == nil {
		to.told = time.Time{}
		return false
	}
	is := time.Since(to.told) > longestRest
	if is {
		to.told = time.Now()
	}
	return is
}

// share is how many messages a destination may have in hand.
func (to *destination) share() int {
	if to.caller.trial.on {
		return inHandAtOnce
	}
	return to.usual()
}

func (to *destination) usual() int { return max(to.most, shareOfOne) }

// fit lets a destination have more in hand while it is quick.
func (to *destination) fit(l delivery, c *RelayConfig) {
	switch {
	case l.took > readAgain:
		to.most = shareOfOne
	case len(l.places) >= to.usual()/2:
		to.most = min(2*to.usual(), c.BatchSize)
	}
}

// pausesOf are those while a destination is away.
func pausesOf(c *RelayConfig) txn.Pauses {
	return txn.Pauses{Current: max(2*c.MinPause, 2), Limit: max(min(c.MaxPause, longestRest), 2)}
}
