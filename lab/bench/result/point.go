package result

import "fmt"

// The kinds of work that a cell can be about.
const (
	First  = "first"  // every call has a new key
	Replay = "replay" // every call has a key whose response is recorded
	Mixed  = "mixed"  // some calls repeat a recent key
)

// The two businesses.
const (
	Insert    = "insert"
	Realistic = "realistic"
)

// The ways to a server that are measured.
const (
	Loopback = "loopback"
	RTT      = "rtt"   // a millisecond of round-trip time
	Flush    = "flush" // a disk that takes a millisecond longer
	Grown    = "grown" // tables of several sizes
	Newest   = "pg18"
)

// Undisturbed is the setting of a disk that is as it is.
const Undisturbed = "as it is"

// Small is the size of a response where nothing else is said.
const Small = 200

// Point is one point of the plan. The cell that was measured there has its name.
type Point struct {
	Work, Business, Leg string
	Clients             int
	Response            int     // bytes; 0: Small
	Share               float64 // of duplicates, for Mixed
}

// Bytes is the size of the response.
func (p Point) Bytes() int {
	if p.Response == 0 {
		return Small
	}
	return p.Response
}

// Name tells what is done, where, by how many.
func (p Point) Name() string {
	name := p.Work
	if p.Share > 0 {
		name = fmt.Sprintf("%s-%g", p.Work, p.Share*100)
	}
	if p.Bytes() != Small {
		name += "-" + size(p.Bytes())
	}
	return fmt.Sprintf("%s/%s/%s/%d", name, p.Business, p.Leg, p.Clients)
}

func size(bytes int) string {
	if bytes >= 1<<20 {
		return fmt.Sprintf("%dMiB", bytes>>20)
	}
	return fmt.Sprintf("%dKiB", bytes>>10)
}

// Spell tells in words what is done, and by how many.
func (p Point) Spell() string {
	if p.Work == Replay {
		return "replay, " + Clients(p.Clients)
	}
	return "first run, " + Clients(p.Clients)
}

// Clients counts them in words.
func Clients(n int) string {
	if n == 1 {
		return "1 client"
	}
	return fmt.Sprintf("%d clients", n)
}
