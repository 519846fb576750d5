package inbox

import (
	"context"
	"time"

	"github.com/idem-go/idem"
)

// Observer sees what becomes of messages, for metrics and logs. Its methods are called in the goroutine of the call and must be
// quick. They never see an id in full or a payload.
type Observer interface {
	// TraceHandled is told of each call when it is over.
	TraceHandled(ctx context.Context, data TraceHandledData)
}

// TraceHandledData tells of a call.
type TraceHandledData struct {
	Consumer string
	Messages int // that it was given
	Joined   bool

	Done, Duplicates, Retried, Died int // the outcomes
	Mismatches                      int // of those that died
	Failures                        int // attempts that were counted
	Hindered                        int // attempts that something else has hindered, and that were not counted
	Paused                          int // messages that were put off because the consumer pauses: see WithCircuit
	Runs                            int // of the handler, committed or not
	Transactions                    int

	Duration time.Duration
	Err      error      // what the call returned
	Cause    idem.Cause // what kind of error that is
}
