package letter

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"time"
)

// The topics. A worker puts letters into Orders; whoever bills an order puts one into Bills. Nobody reads the others.
const (
	Orders  = "orders"
	Bills   = "bills"
	Slow    = "slow"    // its destination takes its time for each letter
	Nowhere = "nowhere" // whoever asks for its destination panics
)

// Consumer is who reads a topic.
type Consumer struct {
	Name  string
	Topic string
	// Ordered says that it has the letters of a key one after the other.
	Ordered bool
	// Answers says that it puts a letter into Bills for some of those that it reads.
	Answers bool
}

// Direct are the consumers of a run without a broker: each topic has one.
func Direct() []Consumer {
	return []Consumer{
		{Name: "billing", Topic: Orders, Ordered: true, Answers: true},
		{Name: "mail", Topic: Bills, Ordered: true},
		{Name: "tenant", Topic: Slow, Ordered: true},
	}
}

// Consumers are all there are.
func Consumers() []Consumer {
	return []Consumer{
		{Name: "billing", Topic: Orders, Ordered: true, Answers: true},
		{Name: "stock", Topic: Orders},
		{Name: "mail", Topic: Bills, Ordered: true},
	}
}

// Fate is what is to become of a letter. The broker and the consumers look at it.
type Fate string

// The fates.
const (
	Plain        Fate = ""
	Unwanted     Fate = "unwanted"        // the broker never takes it: it becomes a dead letter of the outbox
	Unnamed      Fate = "unnamed"         // the same, and whoever publishes it does not say which letter it is about
	Stubborn     Fate = "stubborn"        // the broker does not take it twice
	Severed      Fate = "severed"         // whoever has it in hand loses its connection meanwhile, a few times
	Poison       Fate = "poison"          // no consumer can handle it: it becomes a dead letter of each
	BrokenSQL    Fate = "broken SQL"      // the same, by an error of the database
	BrokenCommit Fate = "fails at commit" // the same, by one that COMMIT tells
	Flaky        Fate = "flaky"           // a consumer fails now and then, and seldom too often
	Passing      Fate = "passing"         // a consumer fails now and then, by an error of the database that passes
	Swallows     Fate = "swallows"        // a consumer has an error of the database, and says that all is well
)

// CanDie reports whether a letter may become a dead letter of an inbox.
func (f Fate) CanDie() bool {
	switch f {
	case Poison, BrokenSQL, BrokenCommit, Flaky, Passing, Swallows:
		return true
	}
	return false
}

// MustDie reports whether no consumer may have handled it.
func (f Fate) MustDie() bool { return f.CanDie() && f != Flaky && f != Passing }

// Letter is the payload of a message.
type Letter struct {
	ID    string
	Topic string
	Key   string // empty if it has no place among others
	N     int    // its place among those of its topic and key
	Fate  Fate
	Cause string        // the letter that it answers
	Delay time.Duration `json:",omitempty"` // for how long it is held back, by Message.NotBefore
}

// IsAnswered reports whether a consumer that answers letters answers this one.
func (l Letter) IsAnswered() bool { return l.N%4 == 1 }

// NewID returns an id for a letter.
func NewID() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// Encode returns the payload.
func (l Letter) Encode() []byte {
	encoded, err := json.Marshal(l)
	if err != nil {
		panic(err)
	}
	return encoded
}

// Decode returns what was encoded.
func Decode(payload []byte) (l Letter, err error) {
	err = json.Unmarshal(payload, &l)
	return l, err
}
