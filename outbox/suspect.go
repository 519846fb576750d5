package outbox

import (
	"time"

	"github.com/idem-go/idem/internal/store"
)

// trial finds out, after an error that blames no message, whether the destination is away or a message is bad. Messages are published one at a
// time. One that fails alone is suspected. It is to blame once it has failed, another one was published, it has failed again, and again another one
// was published: so the destination was there before and after. As long as everything fails the destination is away, and no attempt is counted.
type trial struct {
	on       bool
	rounds   int                // since a message was published
	went     int                // how many messages were published
	suspects map[int64]*suspect // by their places
	doubted  map[int64]int      // places of messages that have failed together, and in which order they are tried
	lines    lines
	known    map[store.HeldKey]bool // keys of which a message was published, and none has failed since

	// Of the last calls that were about one message which was published in the end: how many have published it, and how many have failed.
	fine, chance int
}

// suspect is a message that has failed alone.
type suspect struct {
	err      error
	misses   int // how often it has failed
	failures int // between any two of which another message was published
	went     int // how many messages were published when the last of these happened
	took     time.Duration
}

// outlive notes that a message was published. That it has failed before was by chance, also if it was found to be to blame.
func (t *trial) outlive(place int64, found *lone) {
	if s := t.suspects[place]; s != nil {
		t.chance += s.misses
	}
	if found != nil {
		t.chance += found.misses
	}
	delete(t.suspects, place)
	t.went++
}

// mostKnown bounds how many keys are known.
const mostKnown = 32_000

func (t *trial) know(key store.HeldKey) {
	if t.known == nil || len(t.known) >= mostKnown && !t.known[key] {
		t.known = map[store.HeldKey]bool{}
	}
	t.known[key] = true
}

// lastCalls bounds for how long a destination is remembered to have failed by chance.
const lastCalls = 64

// succeed notes a call that has succeeded.
func (t *trial) succeed() {
	if t.fine++; t.fine+t.chance > lastCalls {
		t.fine, t.chance = t.fine/2, t.chance/2
	}
}

// isUnwell reports whether more than about a quarter of the calls fail by chance: then a failure says nothing of its message.
func (t *trial) isUnwell() bool { return 3*(t.chance+1) > t.fine }

// fail notes that a message has failed alone, and reports whether it is only left to publish another one to find it guilty.
func (t *trial) fail(place int64, err error, took time.Duration) bool {
	if t.suspects == nil {
		t.suspects = map[int64]*suspect{}
	}
	s := t.suspects[place]
	if s == nil {
		s = &suspect{}
		t.suspects[place] = s
	}
	if s.failures == 0 || t.went > s.went {
		s.failures, s.went = s.failures+1, t.went
	}
	s.err, s.took = err, took
	s.misses++
	return s.failures > 1
}

func (t *trial) isGuilty(place int64) bool {
	s := t.suspects[place]
	return s != nil && s.failures > 1 && t.went > s.went && !t.isUnwell()
}

// end ends it, because nothing is left of what was looked for.
func (t *trial) end() { t.on, t.rounds, t.suspects, t.doubted = false, 0, nil, nil }

// lone is a message that was found to be to blame. Each attempt that it counts from then on has failed alone between two publications of others.
type lone struct {
	failed time.Time // when it last failed, and may count once another one was published; zero if it has not since it was found
	misses int       // how often it has failed
}

// isWide reports whether more than usual is to be read: if all that was read fails, it may be that only what is behind it goes. That is done
// ever less often while nothing is heard from the destination, because it may be away.
func (t *trial) isWide() bool {
	n := t.rounds
	return t.on && (n&(n-1) == 0 || n%16 == 0)
}
