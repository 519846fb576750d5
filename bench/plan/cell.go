package plan

import (
	"fmt"
	"slices"
	"time"

	"github.com/idem-go/idem/bench/contestant"
	"github.com/idem-go/idem/bench/result"
)

// The kinds of work that a cell can be about.
const (
	First  = "first"  // every call has a new key
	Replay = "replay" // every call has a key whose response is recorded
	Mixed  = "mixed"  // some calls repeat a recent key
)

// The two businesses, as results spell them.
const (
	Insert    = "insert"
	Realistic = "realistic"
)

// Small is the size of a response where nothing else is said.
const Small = 200

// cell is one point of the plan.
type cell struct {
	work, business string
	clients        int
	response       int
	share          float64 // of duplicates
	who            []contestant.Contestant
}

// name tells the point in the star: what is done, where, by how many.
func (c cell) name(leg leg) string {
	name := c.work
	if c.share > 0 {
		name = fmt.Sprintf("%s-%g", c.work, c.share*100)
	}
	if c.response != Small {
		name += "-" + size(c.response)
	}
	return fmt.Sprintf("%s/%s/%s/%d", name, c.business, leg.name, c.clients)
}

func size(bytes int) string {
	if bytes >= 1<<20 {
		return fmt.Sprintf("%dMiB", bytes>>20)
	}
	return fmt.Sprintf("%dKiB", bytes>>10)
}

func (c cell) setting(leg leg) result.Setting {
	return result.Setting{
		Server: leg.server.Name, RTT: spell(leg.rtt, "loopback"), Fsync: spell(leg.server.Flush, "as it is"), Clients: c.clients,
		Work: c.work, Business: c.business, Response: c.response, Share: c.share,
	}
}

func spell(d time.Duration, zero string) string {
	if d == 0 {
		return zero
	}
	return d.String()
}

func (c cell) statements() contestant.Business {
	if c.business == Insert {
		return contestant.OneInsert
	}
	return contestant.Realistic
}

// first is a cell of first runs by everybody.
func first(business string, clients int) cell {
	return cell{work: First, business: business, clients: clients, response: Small, who: contestant.All()}
}

// replay is a cell of replays by those who have something to replay.
func replay(clients int) cell {
	return cell{work: Replay, business: Insert, clients: clients, response: Small, who: append([]contestant.Contestant{contestant.Lookup()}, keepers()...)}
}

func mixed(share float64) cell {
	return cell{work: Mixed, business: Realistic, clients: 8, response: Small, share: share, who: append([]contestant.Contestant{contestant.Plain()}, keepers()...)}
}

// sized are the two cells of a larger response.
func sized(bytes int) []cell {
	var who []contestant.Contestant
	for _, c := range keepers() {
		if c.Name != contestant.River().Name { // keeps no response
			who = append(who, c)
		}
	}
	one := cell{business: Insert, clients: 1, response: bytes}
	f, r := one, one
	f.work, f.who = First, append([]contestant.Contestant{contestant.Plain()}, who...)
	r.work, r.who = Replay, append([]contestant.Contestant{contestant.Lookup()}, who...)
	return []cell{f, r}
}

// keepers are the contestants that keep a record of a request. One idem is enough where nothing is executed.
func keepers() []contestant.Contestant {
	plain := []string{contestant.Plain().Name, contestant.Pipelined().Name, contestant.IdemBatch().Name}
	return slices.DeleteFunc(contestant.All(), func(c contestant.Contestant) bool { return slices.Contains(plain, c.Name) })
}
