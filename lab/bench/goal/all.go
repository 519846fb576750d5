package goal

import (
	"fmt"

	"github.com/idem-go/idem/lab/bench/contestant"
	"github.com/idem-go/idem/lab/bench/result"
)

// What idem may cost, and what it must be worth.
const (
	maxFirstWAL     = 714 + 50 // bytes over the plain transaction; 714 are what two bare writes of a record leave (make bench/profile)
	maxFirstAllocs  = 71
	maxReplayAllocs = 29
)

// All are the goals, in the order of the report.
func All() []Goal {
	return []Goal{
		latest("goal/latency", "first run at 1 ms of round-trip time: p50 at most %.2f of the plain transaction", 1.03,
			contestant.NameIdem, contestant.NamePlain, first(result.Insert, result.RTT, 1), first(result.Realistic, result.RTT, 1)),
		cheapest("goal/processor", "processor time on loopback, server and client together: at most %.2f of two bare writes of a record beside the effect", 1.10,
			contestant.NameIdem, contestant.NameBareWrites, first(result.Insert, result.Loopback, 1), first(result.Insert, result.Loopback, 8),
			first(result.Realistic, result.Loopback, 1), first(result.Realistic, result.Loopback, 8)),
		fastest("goal/sql", "database/sql on loopback: idemsql.Do through OpenDB at least %.2f of idem.Do's throughput", 0.95,
			contestant.NameIdemSQL, contestant.NameIdem, first(result.Insert, result.Loopback, 1), first(result.Insert, result.Loopback, 8),
			first(result.Realistic, result.Loopback, 1), first(result.Realistic, result.Loopback, 8)),
		commits("goal/commits", "flush 1 ms slower: at least %.2f times the throughput of the best that commits twice", 1.80),
		latest("goal/replay", "replay on loopback: p50 at most %.2f of a SELECT by primary key", 1.60,
			contestant.NameIdem, contestant.NameLookup, replay(result.Loopback)),
		latest("goal/far-replay", "replay at 1 ms of round-trip time: p50 at most %.2f of a SELECT by primary key", 1.15,
			contestant.NameIdem, contestant.NameLookup, replay(result.RTT)),
		latest("goal/hinted", "hinted replay on loopback: p50 at most %.2f of a SELECT by primary key", 1.15,
			contestant.NameIdemHinted, contestant.NameLookup, replay(result.Loopback)),
		fastest("goal/duplicates", "50 %% duplicates: at least %.2f of the textbook pattern's throughput", 1.00,
			contestant.NameIdem, contestant.NameTextbook, result.Point{Work: result.Mixed, Business: result.Realistic, Leg: result.Loopback, Clients: 8, Share: 0.5}),
		costs("goal/wal", fmt.Sprintf("write-ahead log: at most %d bytes more than the plain transaction, 0 for a replay", maxFirstWAL),
			cost{"first run", walFirst, overPlain, maxFirstWAL}, cost{"replay", walReplay, alone, 0}),
		costs("goal/allocations", fmt.Sprintf("allocations: at most %d for a first run, %d for a replay", maxFirstAllocs, maxReplayAllocs),
			cost{"first run", allocsFirst, alone, maxFirstAllocs}, cost{"replay", allocsReplay, alone, maxReplayAllocs}),
		storm("goal/storm", "hot key with 1,000 duplicates: bystanders' p99 at most %.2f of what it is without them", 1.5),
		growth("goal/growth", "flat: p50 at most %.2f of what it is at 10,000 records", 1.10),
		textbook("goal/textbook", "the textbook pattern by hand is nowhere cheaper"),
	}
}

func first(business, leg string, clients int) result.Point {
	return result.Point{Work: result.First, Business: business, Leg: leg, Clients: clients}
}

func replay(leg string) result.Point {
	return result.Point{Work: result.Replay, Business: result.Insert, Leg: leg, Clients: 1}
}
