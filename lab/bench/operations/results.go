package main

import (
	"time"

	"github.com/idem-go/idem/lab/bench/operations/contestant"
	"github.com/idem-go/idem/lab/sidebyside"
)

// results are what a run has measured.
type results struct {
	options     sidebyside.Options
	plan        plan
	contestants []contestant.Contestant

	Host   sidebyside.Host
	Took   time.Duration
	Server string
	Flush  time.Duration
	Costs  []cost
	Cells  []*cell
	Crowd  time.Duration
	Kills  []*resumption
}

// newResults notes when this was, and where.
func newResults(o sidebyside.Options, contestants []contestant.Contestant) *results {
	return &results{options: o, plan: planOf(o.Quick), contestants: contestants, Host: sidebyside.Here()}
}

// compared are the modules whose versions matter to a reader.
var compared = []string{
	"github.com/jackc/pgx/v5", "github.com/dbos-inc/dbos-transact-golang", "github.com/riverqueue/river", "github.com/cschleiden/go-workflows",
}
