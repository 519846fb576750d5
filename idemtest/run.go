package idemtest

import (
	"testing"
	"time"
)

func newSuite(t testing.TB, patience, within time.Duration) *suite {
	if patience == 0 {
		patience = defaultPatience
	}
	if within == 0 {
		within = defaultWithin
	}
	return &suite{
		report: newReport(t), patience: patience, within: within,
		forgotten: onRecord, early: afterCommit, taken: everyKey, repeated: inTransaction, swallowed: answered,
	}
}

// run holds the code to everything. What is found first says most: a broken basis is reported alone.
func (u *suite) run() {
	u.Helper()
	for _, stage := range [][]func(){
		{u.alone}, {u.inTurn}, {u.payload, u.principal, u.another, u.later, u.together, u.besides, u.inProgress}, {u.underFaults, u.oneByOne},
	} {
		for _, trial := range stage {
			trial()
		}
		if u.broken() > 0 {
			return
		}
	}
}
