package main

import (
	"fmt"
	"time"
)

// plan is how much is measured.
type plan struct {
	ops     int // of which the cost is counted
	rounds  int
	sample  time.Duration
	warm    time.Duration // at most, until connections have their statements prepared and planned
	pool    int32
	cells   []setting
	workers int // processes
	each    int // operations of each of them
	// patience is how long a call may take for those who see by a timeout that a process is dead, limit how long is waited for
	// them after a kill.
	patience, limit time.Duration
}

// warmUp is how many operations each client makes before it is measured: PostgreSQL plans a statement anew for the first five times on
// each connection.
func (p plan) warmUp(clients int) int {
	if p.warm == 0 {
		return 1
	}
	return (8*min(clients, int(p.pool)) + 24) / clients
}

// setting is a cell: how far away the bank is, and how many clients there are.
type setting struct {
	delay   time.Duration
	clients int
}

func (s setting) bank() string {
	if s.delay == 0 {
		return "bank on loopback"
	}
	return fmt.Sprintf("bank at %v", s.delay)
}

func (s setting) String() string {
	if s.clients == 1 {
		return s.bank() + ", 1 client"
	}
	return fmt.Sprintf("%s, %d clients", s.bank(), s.clients)
}

const far = 20 * time.Millisecond

func planOf(quick bool) plan {
	p := plan{
		ops: 200, rounds: 4, sample: 900 * time.Millisecond, warm: 1500 * time.Millisecond, pool: 20,
		cells:   []setting{{0, 1}, {0, 8}, {far, 1}, {far, 64}},
		workers: 10, each: 100, patience: 15 * time.Second, limit: 70 * time.Second,
	}
	if quick {
		p.ops, p.rounds, p.sample, p.warm = 3, 1, 50*time.Millisecond, 0
		p.cells = []setting{{0, 1}, {far, 8}}
		p.workers, p.each, p.patience, p.limit = 3, 3, time.Second, time.Minute
	}
	return p
}
