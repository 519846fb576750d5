package idemtest

import (
	"testing"
	"time"
)

// newSuite returns a suite with the promises of a handler or function. Consumer and Operation
// replace some of these promises.
func newSuite(t testing.TB, patience, within time.Duration) *suite {
	if patience == 0 {
		patience = defaultPatience
	}
	if within == 0 {
		within = defaultWithin
	}
	return &suite{
		report: newReport(t), patience: patience, within: within,
		unrecorded: recorded, early: afterCommit, taken: everyKey, repeated: inTransaction, checkOther: answered,
	}
}

// run runs the trials in groups and stops after the first group that reports a broken promise. Each
// group relies on what the earlier groups check. After a broken promise, findings of later groups
// would only distract.
func (u *suite) run() {
	u.Helper()
	for _, group := range [][]func(){
		{u.firstRun},
		{u.oneAfterAnother},
		{u.otherPayload, u.otherPrincipal, u.otherKeys, u.afterTime, u.simultaneous, u.twoPrincipals, u.inProgress},
		{u.injectFaults, u.onOneConnection},
	} {
		for _, trial := range group {
			trial()
		}
		if u.broken() > 0 {
			return
		}
	}
}
