package main

import "time"

// plan is how much is measured.
type plan struct {
	ops    int // of which the cost is counted
	rounds int
	sample time.Duration
	warm   int // orders of each client before a sample
	pool   int32
	// clients are how many orders are placed at once, of so few customers that two of one are often under way.
	clients, customers int
	// pace is how many orders a second are placed while is measured how soon their messages leave, for so long.
	pace    int
	pacing  time.Duration
	stock   int // messages that a relay finds
	workers []int
	batch   int // messages that are handled together
	kills   kill
}

// kill is how much is done while processes are killed.
type kill struct {
	times    int // that a process is killed
	between  int // messages published, or acknowledged, before the next time
	messages int // that the source makes
	workers  int
	batch    int
	// confirm is how long the broker takes to confirm what it was given, as one that replicates does.
	confirm time.Duration
	// pause is that of a client after each order, so that a slow relay is not far behind.
	pause time.Duration
	// patience is how long a message may take for those who see by a timeout that a process is dead. What has not come when nothing has
	// come for rest is lost: River looks for what to rescue every 30 s. Limit is how long a process may take in any case.
	patience, rest, limit time.Duration
}

func planOf(quick bool) plan {
	p := plan{
		ops: 200, rounds: 3, sample: 800 * time.Millisecond, warm: 25, pool: 20,
		clients: 8, customers: 20, pace: 200, pacing: 2 * time.Second, stock: 20_000, workers: []int{1, 8}, batch: 1000,
		kills: kill{times: 6, between: 1000, messages: 12_000, workers: 4, batch: 100, confirm: 2 * time.Millisecond, pause: 10 * time.Millisecond, patience: 2 * time.Second, rest: time.Minute, limit: 5 * time.Minute},
	}
	if quick {
		p.ops, p.rounds, p.sample, p.warm = 3, 1, 50*time.Millisecond, 1
		p.pacing, p.stock, p.workers = 200*time.Millisecond, 200, []int{1, 4}
		p.kills.times, p.kills.between, p.kills.messages, p.kills.batch, p.kills.rest = 2, 20, 400, 5, 2*time.Minute
	}
	return p
}
