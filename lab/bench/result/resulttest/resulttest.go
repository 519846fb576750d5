// Package resulttest makes results up, for tests of what is made of them.
package resulttest

import (
	"time"

	"github.com/idem-go/idem/lab/bench/contestant"
	"github.com/idem-go/idem/lab/bench/result"
)

// entry is one whose rounds took so many microseconds, by one caller, and twice as much of the processors.
func entry(name string, p50s ...float64) result.Entry {
	e := result.Entry{Name: name, Ops: 10, P50: p50s[0], P99: 2 * p50s[0], Executed: 10, Requests: 10}
	for _, p50 := range p50s {
		e.Rounds = append(e.Rounds, result.Round{Ops: 5, P50: p50, PerSecond: 1e6 / p50, Processor: 2 * p50})
	}
	return e
}

func cell(point result.Point, entries ...result.Entry) result.Cell {
	return result.Cell{Name: point.Name(), Unit: entries[0].Name, Entries: entries, Setting: result.Setting{
		Server: "base", RTT: result.Loopback, Fsync: result.Undisturbed, Clients: point.Clients, Work: point.Work, Business: point.Business,
		Response: point.Bytes(), Share: point.Share,
	}}
}

// Run is one in which every goal was measured somewhere.
func Run() *result.Results {
	return &result.Results{
		Taken: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC), Took: "10m0s", Command: "go run .", Seed: 1, Pool: 40,
		Machine:  result.Machine{OS: "Debian", Kernel: "Linux", CPU: "CPU", Cores: 2, MemoryGB: 16},
		Versions: map[string]string{"go": "1.26"},
		Servers:  []result.Server{{Name: "base", Version: "15.1", Settings: []string{"a=b"}, FlushUS: 50}},
		Cells: []result.Cell{
			cell(first(result.Insert, result.Loopback, 1), entry(contestant.NamePlain, 100, 100, 100), entry(contestant.NameIdem, 150, 160, 170),
				entry(contestant.NameBareWrites, 140, 140, 140)),
			cell(first(result.Insert, result.RTT, 1), entry(contestant.NamePlain, 1000, 2000, 1000), entry(contestant.NameIdem, 1040, 2100, 1030)),
			cell(first(result.Realistic, result.RTT, 1), entry(contestant.NamePlain, 1000, 1000, 1000), entry(contestant.NameIdem, 1060, 1060, 1000)),
			cell(first(result.Realistic, result.Loopback, 8), entry(contestant.NamePlain, 80, 80, 80), entry(contestant.NameIdem, 100, 100, 100), entry(contestant.NamePhases, 200, 200, 200),
				entry(contestant.NameBareWrites, 80, 80, 80)),
			cell(first(result.Realistic, result.Flush, 8), entry(contestant.NamePlain, 100, 100, 100), entry(contestant.NameIdem, 100, 100, 100), entry(contestant.NamePhases, 190, 190, 190), entry(contestant.NameFiber, 170, 170, 170)),
			cell(replay(result.Loopback), entry(contestant.NameLookup, 50, 50, 50), entry(contestant.NameIdem, 85, 80, 75),
				entry(contestant.NameIdemHinted, 55, 60, 55), entry(contestant.NameTextbook, 90, 90, 90)),
			cell(replay(result.RTT), entry(contestant.NameLookup, 1000, 1000, 1000), entry(contestant.NameIdem, 1100, 1200, 1180)),
			cell(mixed(0.5), entry(contestant.NamePlain, 100, 100, 100), entry(contestant.NameIdem, 90, 90, 90), entry(contestant.NameTextbook, 99, 90, 81)),
			cell(first(result.Insert, result.Grown, 1), sized(10000, 100, 100, 100), sized(1000000, 109, 111, 109)),
			cell(replay(result.Grown), sized(10000, 100, 100, 100), sized(1000000, 115, 112, 111)),
		},
		Profiles: []result.Profile{
			{Name: contestant.NamePlain, WAL: result.Pair{First: 200}, Trips: result.Trips{Insert: 3, Realistic: 7}},
			{Name: contestant.NameIdem, WAL: result.Pair{First: 850}, Trips: result.Trips{Insert: 3, Realistic: 7, Replay: 2}, Storage: 1234,
				Allocs: result.Pair{First: 60, Replay: 30}},
			{Name: contestant.NameTextbook, WAL: result.Pair{First: 840}, Trips: result.Trips{Insert: 5, Realistic: 9, Replay: 4}, Storage: 1234,
				Allocs: result.Pair{First: 40, Replay: 30}},
			{Name: contestant.NameSelectInsert, Duplicates: result.Duplicates{Races: 10, Executed: 99}},
		},
		Storms: []result.Storm{{Name: contestant.NameIdem, Storms: 2, Calm: []float64{1000, 1000}, Stormy: []float64{1400, 1700}, CalmP99: 1000, StormP99: 1600, Settled: 201}},
		Notes:  []string{"pg18 was left out: none"},
	}
}

func first(business, leg string, clients int) result.Point {
	return result.Point{Work: result.First, Business: business, Leg: leg, Clients: clients}
}

func replay(leg string) result.Point {
	return result.Point{Work: result.Replay, Business: result.Insert, Leg: leg, Clients: 1}
}

func mixed(share float64) result.Point {
	return result.Point{Work: result.Mixed, Business: result.Realistic, Leg: result.Loopback, Clients: 8, Share: share}
}

// sized is the entry of a table with so many records.
func sized(records int, p50s ...float64) result.Entry {
	e := entry(result.Grouped(float64(records))+" records", p50s...)
	e.Records = records
	return e
}
