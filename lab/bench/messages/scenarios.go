package messages

import (
	"fmt"
	"slices"
	"time"

	"github.com/idem-go/idem/lab/bench/messages/in"
	"github.com/idem-go/idem/lab/bench/messages/out"
	"github.com/idem-go/idem/lab/bench/runner"
)

// Modules are the modules whose versions the report names.
var Modules = []string{
	"github.com/jackc/pgx/v5", "github.com/ThreeDotsLabs/watermill", "github.com/ThreeDotsLabs/watermill-sql/v4",
}

// plan is the size of the measurement.
type plan struct {
	server runner.Spec
	ops    int // number of orders in the cost scenario
	rounds int
	turn   time.Duration
	warm   int // orders of each client before a turn
	batch  int // maximum number of messages in a batch
	kill   kill
}

const (
	poolSize  = 20
	clients   = 8
	customers = 20 // few, so that two orders of one customer are often in progress
)

func planOf(quick bool) plan {
	p := plan{ops: 200, rounds: 3, turn: 800 * time.Millisecond, warm: 25, batch: 1000, kill: kill{
		times: 6, between: 1000, messages: 12_000, workers: 4, batch: 100, confirm: 2 * time.Millisecond, pause: 10 * time.Millisecond,
		rest: 10 * time.Second, limit: 5 * time.Minute,
	}}
	if quick {
		p.server.Volatile = true
		p.ops, p.rounds, p.turn, p.warm = 3, 1, 50*time.Millisecond, 1
		p.kill.times, p.kill.between, p.kill.messages, p.kill.batch = 2, 20, 400, 5
	}
	return p
}

// Scenarios returns the scenarios of the suite. The figures of a quick run are not meaningful.
func Scenarios(quick bool) []runner.Scenario {
	p := planOf(quick)
	publish := slices.DeleteFunc(out.All(), func(c out.Contestant) bool { return c.Silent })
	all := []runner.Scenario{
		p.out("costs", 0, out.All(), (*seat).cost),
		p.out("saving", p.rounds, out.All(), (*seat).save),
		p.out("end-to-end", p.rounds, out.All(), (*seat).through),
		p.effects(1), p.effects(8),
	}
	killed := runner.Scenario{Name: "messages/killed/out", Server: p.server, AtOnce: 4}
	for _, c := range publish {
		killed.Contestants = append(killed.Contestants, p.kill.out(c))
	}
	all = append(all, killed)
	killed = runner.Scenario{Name: "messages/killed/in", Server: p.server, AtOnce: 4}
	for _, c := range in.All() {
		killed.Contestants = append(killed.Contestants, p.kill.in(c))
	}
	return append(all, killed)
}

// effects returns a scenario that measures the throughput of consumers.
func (p plan) effects(workers int) runner.Scenario {
	sc := runner.Scenario{Name: fmt.Sprintf("messages/effects/%d", workers), Server: p.server, Rounds: p.rounds}
	for _, c := range in.All() {
		sc.Contestants = append(sc.Contestants, p.consumer(c, workers))
	}
	return sc
}
