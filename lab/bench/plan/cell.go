package plan

import (
	"slices"
	"time"

	"github.com/idem-go/idem/lab/bench/contestant"
	"github.com/idem-go/idem/lab/bench/result"
)

// cell is one point of the plan, and who takes part there. The first of them is the unit.
type cell struct {
	result.Point
	who []contestant.Contestant
}

// at is the same cell on a leg.
func (c cell) at(leg string) cell {
	c.Leg = leg
	return c
}

func (c cell) setting(leg leg) result.Setting {
	return result.Setting{
		Server: leg.server.Name, RTT: spell(leg.rtt, result.Loopback), Fsync: spell(leg.server.Flush, result.Undisturbed), Clients: c.Clients,
		Work: c.Work, Business: c.Business, Response: c.Bytes(), Share: c.Share,
	}
}

func spell(d time.Duration, zero string) string {
	if d == 0 {
		return zero
	}
	return d.String()
}

func (c cell) statements() contestant.Business {
	if c.Business == result.Insert {
		return contestant.OneInsert
	}
	return contestant.Realistic
}

// first is a cell of first runs by everybody.
func first(business string, clients int) cell {
	return cell{result.Point{Work: result.First, Business: business, Clients: clients}, slices.Concat(contestant.All(), contestant.DatabaseSQL(), []contestant.Contestant{contestant.BareWrites()})}
}

// replay is a cell of replays by those who have something to replay.
func replay(clients int) cell {
	who := append([]contestant.Contestant{contestant.Lookup()}, keepers()...)
	return cell{result.Point{Work: result.Replay, Business: result.Insert, Clients: clients}, append(who, contestant.Hinted()...)}
}

func mixed(share float64) cell {
	return cell{result.Point{Work: result.Mixed, Business: result.Realistic, Clients: 8, Share: share},
		append([]contestant.Contestant{contestant.Plain()}, keepers()...)}
}

// sized are the two cells of a larger response.
func sized(bytes int) []cell {
	who := slices.DeleteFunc(keepers(), func(c contestant.Contestant) bool { return c.Forgets })
	one := result.Point{Business: result.Insert, Clients: 1, Response: bytes}
	f, r := one, one
	f.Work, r.Work = result.First, result.Replay
	return []cell{
		{f, append([]contestant.Contestant{contestant.Plain()}, who...)},
		{r, append([]contestant.Contestant{contestant.Lookup()}, who...)},
	}
}

// keepers are the contestants that keep a record of a request. One idem is enough where nothing is executed.
func keepers() []contestant.Contestant {
	return slices.DeleteFunc(contestant.All(), func(c contestant.Contestant) bool { return c.Recordless || c.Name == contestant.NameIdemBatch })
}
