// Command profile tells where the time of a call goes: what each thing that idem.Do says to the server adds to a plain
// transaction, in latency, in processor time of the server and of the client, and in bytes of the write-ahead log.
//
//	make bench/profile                       everything, in five minutes, into docs/benchmarks/report.md
//	make bench/profile BENCH='-quick'        that it runs: these figures say nothing
//	make bench/profile BENCH='-steps calls'  some of it, and nothing is written
//
// It reads the processor time of processes where Linux has it, pg_waldump tells what is in the log, and perf, where it is
// installed and allowed, in which programs the time is spent. valgrind, where it is installed, counts the instructions of the server,
// which no load changes. What is not there is left out.
package main

import (
	"context"
	"fmt"

	"github.com/idem-go/idem/lab/sidebyside"
)

func main() {
	sidebyside.Main("profile", steps, profile)
}

// steps are what is measured, in this order.
var steps = []sidebyside.Step[*sidebyside.Server, *results]{
	{Name: "calls", Run: calls}, {Name: "log", Run: logs}, {Name: "programs", Run: programs}, {Name: "instructions", Run: instructions},
	{Name: "sizes", Run: sizes},
}

func profile(ctx context.Context, s *sidebyside.Server, o sidebyside.Options) (fmt.Stringer, error) {
	r, err := newResults(o)
	if err != nil {
		return nil, err
	}
	r.server, r.flush = s.Described, s.Flush
	r.took, err = sidebyside.Take(ctx, o, steps, s, r)
	return r, err
}
