package calls

import (
	"fmt"
	"slices"
	"time"

	"github.com/idem-go/idem/lab/bench/calls/contestant"
	"github.com/idem-go/idem/lab/bench/runner"
)

// Modules lists the Go modules whose versions are stored with the results.
var Modules = []string{
	"github.com/jackc/pgx/v5", "github.com/dbos-inc/dbos-transact-golang", "github.com/redis/go-redis/v9",
}

const (
	millisecond = time.Millisecond
	poolSize    = 40 // enough for 32 clients and the background work of a contestant
)

// plan collects the scenarios. The scenarios vary one parameter at a time, because all combinations
// of parameters would take a day.
type plan struct {
	quick bool
	seed  uint64
	all   []runner.Scenario
}

// Scenarios returns the scenarios of the suite "calls". If quick is true, it returns fewer and
// shorter scenarios, without large tables.
func Scenarios(quick bool, seed uint64) []runner.Scenario {
	p := &plan{quick: quick, seed: seed}
	near, far := place{name: "loopback"}, place{name: "rtt", rtt: millisecond}
	firsts := contestant.All
	replays := append(append([]contestant.Contestant{contestant.Lookup}, keepers()...), contestant.IdemHinted)
	insert, realistic := cell{work: first}, cell{work: first, realistic: true}
	p.cells(near, firsts, insert.by(1), realistic.by(8))
	p.cells(far, firsts, insert.by(1), realistic.by(1))
	p.cells(near, replays, cell{work: replay}.by(1))
	p.cells(far, replays, cell{work: replay}.by(1))
	if !quick {
		p.cells(near, firsts, insert.by(8))
	}
	p.each("costs", 0, contestant.All, costs)
	p.each("storm", p.rounds(8), keepers(), storm)
	p.growth("growth", []int{1, 8})
	slices.SortStableFunc(p.all, func(a, b runner.Scenario) int { return rank(a.Server) - rank(b.Server) })
	return p.all
}

// Profile returns the scenarios of the suite "profile", which measure the processor time of a call.
func Profile(quick bool, seed uint64) []runner.Scenario {
	p := &plan{quick: quick, seed: seed}
	near := place{name: "profile"}
	turn := cell{clients: 1, processor: true, limit: runner.Limit{Calls: 500}}
	if quick {
		turn.limit.Calls = 50
	}
	for _, realistic := range []bool{false, true} {
		turn.work, turn.realistic = first, realistic
		p.cells(near, []contestant.Contestant{contestant.Plain, contestant.Idem, contestant.Textbook}, turn)
	}
	turn.work, turn.realistic = replay, false
	p.cells(near, []contestant.Contestant{contestant.Lookup, contestant.IdemHinted, contestant.Idem, contestant.Textbook}, turn)
	p.growth("profile/growth", []int{1})
	return p.all
}

// rank orders the scenarios by the server that they need, so that each kind of server is started
// only once.
func rank(s runner.Spec) int {
	if s.Load {
		return 1
	}
	return 0
}

// place is the latency between the contestants and the server, with a name for the scenario.
type place struct {
	name string
	rtt  time.Duration
}

// rounds returns the number of rounds of a scenario: n, or 3 in a quick run. In a round, each
// contestant is measured once. Many short rounds are better than few long ones, because the
// compared measurements are then closer together in time. If the number of rounds is odd, the
// median is one of the measured values.
func (p *plan) rounds(n int) int {
	if p.quick {
		return 3
	}
	return n
}

// cells adds a scenario for each cell. who contains the contestants, and at is the latency.
func (p *plan) cells(at place, who []contestant.Contestant, cells ...cell) {
	for _, c := range cells {
		rounds := 15
		if c.processor {
			rounds = 25
		}
		if c.limit == (runner.Limit{}) {
			c.limit.Time = 85 * millisecond
		}
		c.way = way{rtt: at.rtt, conns: poolSize}
		p.each(c.name(at), p.rounds(rounds), who, c.contestant)
	}
}

// by returns a copy of the cell with the given number of clients.
func (c cell) by(clients int) cell {
	c.clients = clients
	return c
}

// name returns the name of the scenario: kind of calls, business, server and number of clients.
func (c cell) name(at place) string {
	business := "insert"
	if c.realistic {
		business = "realistic"
	}
	return fmt.Sprintf("%s/%s/%s/%d", c.work, business, at.name, c.clients)
}

// each adds a scenario. It calls measure for each implementation in who to get the contestants of
// the scenario.
func (p *plan) each(name string, rounds int, who []contestant.Contestant, measure func(contestant.Contestant, uint64) runner.Contestant) {
	sc := runner.Scenario{Name: name, Rounds: rounds}
	for _, one := range who {
		sc.Contestants = append(sc.Contestants, measure(one, runner.SeedOf(p.seed, name)))
	}
	p.all = append(p.all, sc)
}

// growth adds a scenario that measures idem.Do on tables of different sizes.
func (p *plan) growth(name string, clients []int) {
	sizes := []int{10_000, 1_000_000, 10_000_000}
	if p.quick {
		sizes = []int{1_000, 10_000}
	}
	sc := runner.Scenario{Name: name, Server: runner.Spec{Load: true}, Rounds: p.rounds(21)}
	for _, records := range sizes {
		sc.Contestants = append(sc.Contestants, grown(records, clients, 150*millisecond, runner.SeedOf(p.seed, name)))
	}
	p.all = append(p.all, sc)
}

// keepers returns the contestants that record requests. It leaves out IdemBatch, because a replay
// executes nothing and so is the same as with Idem.
func keepers() []contestant.Contestant {
	return slices.DeleteFunc(slices.Clone(contestant.All), func(c contestant.Contestant) bool {
		return c.Recordless || c.Name == contestant.IdemBatch.Name
	})
}
