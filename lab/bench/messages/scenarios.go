package messages

import (
	"fmt"
	"time"

	"github.com/idem-go/idem/lab/bench/messages/in"
	"github.com/idem-go/idem/lab/bench/messages/out"
	"github.com/idem-go/idem/lab/bench/runner"
)

// Modules lists the Go modules whose versions are stored with the results.
var Modules = []string{
	"github.com/jackc/pgx/v5", "github.com/ThreeDotsLabs/watermill", "github.com/ThreeDotsLabs/watermill-sql/v4",
}

// plan contains the sizes and durations of the measurements.
type plan struct {
	server runner.Spec
	ops    int // number of orders in the cost scenario
	rounds int
	turn   time.Duration
	warm   int // number of orders of each client, or of messages of each worker, before each measurement
	batch  int // maximum number of messages in a batch
	kill   kill
}

const (
	poolSize  = 20
	clients   = 8
	customers = 20 // few customers, so that two orders of a customer are often in progress
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

// Scenarios returns the scenarios of the suite "messages". If quick is true, the scenarios are so
// short that their figures are not meaningful.
func Scenarios(quick bool, _ uint64) []runner.Scenario {
	p := planOf(quick)
	scenarios := []runner.Scenario{
		p.out("costs", 0, (*seat).cost), p.out("saving", p.rounds, (*seat).save), p.out("end-to-end", p.rounds, (*seat).through),
	}
	for _, workers := range []int{1, 8} {
		sc := runner.Scenario{Name: fmt.Sprintf("messages/effects/%d", workers), Server: p.server, Rounds: p.rounds}
		for _, c := range in.All {
			sc.Contestants = append(sc.Contestants, p.consumer(c, workers))
		}
		scenarios = append(scenarios, sc)
	}
	published := runner.Scenario{Name: "messages/killed/out", Server: p.server, AtOnce: 4}
	for _, c := range out.All {
		if !c.Silent {
			published.Contestants = append(published.Contestants, p.kill.out(c))
		}
	}
	consumed := runner.Scenario{Name: "messages/killed/in", Server: p.server, AtOnce: 4}
	for _, c := range in.All {
		consumed.Contestants = append(consumed.Contestants, p.kill.in(c))
	}
	return append(scenarios, published, consumed)
}
