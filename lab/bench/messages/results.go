package main

import (
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/idem-go/idem/lab/bench/messages/broker"
	"github.com/idem-go/idem/lab/bench/messages/in"
	"github.com/idem-go/idem/lab/bench/messages/out"
	"github.com/idem-go/idem/lab/sidebyside"
)

// results are what a run has measured.
type results struct {
	options sidebyside.Options
	plan    plan
	out     []out.Contestant
	in      []in.Contestant
	host    sidebyside.Host
	server  *sidebyside.Server
	took    time.Duration

	costs   []cost
	saving  []*entry // one client that saves, while nobody relays
	through []*entry // several, until all is published
	lag     []*entry // from the commit to the publication
	stock   []*entry // what was found is published
	effects []*cell
	killed  []*casualty
}

// entry is one contestant in a cell, with a figure for each round.
type entry struct {
	name      string
	latencies []time.Duration // of all rounds
	p50       []float64       // seconds
	perSecond []float64
	account   broker.Account // of messages, in all rounds
	doubled   int            // effects, in all rounds
}

// cell is what those who have effects did with so many workers.
type cell struct {
	workers int
	entries []*entry
}

func newResults(o sidebyside.Options) (*results, error) {
	only, err := regexp.Compile(o.Only)
	if err != nil {
		return nil, err
	}
	r := &results{options: o, plan: planOf(o.Quick), host: sidebyside.Here()}
	r.out = slices.DeleteFunc(out.All(), func(c out.Contestant) bool { return !only.MatchString(c.Name) })
	r.in = slices.DeleteFunc(in.All(), func(c in.Contestant) bool { return !only.MatchString(c.Name) })
	if len(r.out)+len(r.in) == 0 {
		return nil, fmt.Errorf("no contestant has a name that %q matches", o.Only)
	}
	return r, nil
}

func find(all []*entry, name string) *entry {
	for _, e := range all {
		if e.name == name {
			return e
		}
	}
	return nil
}

// compared are the modules whose versions matter to a reader.
var compared = []string{
	"github.com/jackc/pgx/v5", "github.com/ThreeDotsLabs/watermill", "github.com/ThreeDotsLabs/watermill-sql/v4", "github.com/riverqueue/river",
}
