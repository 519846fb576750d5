// Package plan says what is measured, and measures it. The plan is a star: one base point, and from there one axis after
// the other, each for the contestants that it can tell apart. All points together would take a day.
package plan

import (
	"time"

	"github.com/idem-go/idem/lab/bench/arena"
	"github.com/idem-go/idem/lab/bench/contestant"
	"github.com/idem-go/idem/lab/bench/result"
)

// leg is what is measured over one way to one server.
type leg struct {
	name     string
	server   arena.Spec
	rtt      time.Duration
	cells    []cell
	profiles []contestant.Contestant // what an operation costs apart from time
	storms   []contestant.Contestant
	growth   []int // records in the table
}

const millisecond = time.Millisecond

// star returns the legs. A server that several of them use is started once.
func star(quick bool, memoryGB int) []leg {
	base := arena.Spec{Name: "base", MemoryGB: memoryGB}
	slow := arena.Spec{Name: "slow-disk", MemoryGB: memoryGB, Flush: millisecond}
	grown := arena.Spec{Name: "grown", MemoryGB: memoryGB, Load: true}
	newest := arena.Spec{Name: "postgres-18", MemoryGB: memoryGB, Major: 18}
	if quick {
		few := []contestant.Contestant{contestant.Idem(), contestant.Textbook(), contestant.Phases(), contestant.Fiber()}
		return []leg{
			{name: result.Loopback, server: base, cells: []cell{first(result.Insert, 1), first(result.Realistic, 8), replay(1), mixed(0.5)}, storms: few},
			{name: result.RTT, server: base, rtt: millisecond, cells: []cell{first(result.Insert, 1), first(result.Realistic, 1), replay(1)}},
			{name: "profile", server: base, profiles: contestant.All()},
			{name: result.Flush, server: slow, cells: []cell{first(result.Insert, 8), first(result.Realistic, 8)}},
			{name: result.Grown, server: grown, growth: result.GrowthSizes()[:2]},
		}
	}
	loopback := []cell{
		first(result.Insert, 1), first(result.Insert, 8), first(result.Realistic, 1), first(result.Realistic, 8), first(result.Realistic, 32),
		replay(1), replay(8), mixed(0.01), mixed(0.5),
	}
	for _, bytes := range []int{16 << 10, 1 << 20} {
		loopback = append(loopback, sized(bytes)...)
	}
	return []leg{
		{name: result.Loopback, server: base, cells: loopback, storms: keepers()},
		{name: result.RTT, server: base, rtt: millisecond, cells: []cell{first(result.Insert, 1), first(result.Realistic, 1), first(result.Realistic, 8), replay(1)}},
		{name: "profile", server: base, profiles: contestant.All()},
		{name: result.Flush, server: slow, cells: []cell{first(result.Insert, 1), first(result.Insert, 8), first(result.Realistic, 1), first(result.Realistic, 8)}},
		{name: result.Grown, server: grown, growth: result.GrowthSizes()},
		{name: result.Newest, server: newest, cells: []cell{first(result.Insert, 1), first(result.Realistic, 8), replay(1)}},
	}
}
