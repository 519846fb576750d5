package history

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
)

// Forever is the end of a call that never returned.
const Forever = time.Duration(math.MaxInt64)

// Operation is one call, from its beginning to its end.
type Operation struct {
	Op Op
	Call
	Begin, End time.Duration // End is Forever if the call is open
	Runs       []Run         // runs of fn, in order
	Return
}

// Run is one execution of fn.
type Run struct {
	At          time.Duration
	ExecutionID string
}

func (o *Operation) String() string {
	s := fmt.Sprintf("%v %s payload=%s fn=%q ttl=%v", o.Op, o.Verb, o.Payload, o.Fn, o.TTL)
	if n := len(o.Runs); n > 0 {
		s += fmt.Sprintf(" runs=%d", n)
	}
	s += " -> " + string(o.Outcome)
	if o.Rejected {
		s += " (rejected)"
	}
	if o.ExecutionID != "" {
		s += fmt.Sprintf(" execution=%.8s made by %v digest=%s", o.ExecutionID, o.Maker, o.Digest)
	}
	if o.Err != "" {
		s += ": " + o.Err
	}
	return s
}

// Operations returns the calls of a run, sorted by their beginning. It fails if an event does not
// belong to an open call.
func Operations(events []Event) ([]*Operation, error) {
	byOp := make(map[Op]*Operation)
	for i := range events {
		if err := add(byOp, &events[i]); err != nil {
			return nil, err
		}
	}
	operations := slices.Collect(maps.Values(byOp))
	slices.SortFunc(operations, func(a, b *Operation) int {
		return cmp.Or(cmp.Compare(a.Begin, b.Begin), cmp.Compare(a.Op, b.Op))
	})
	return operations, nil
}

func add(byOp map[Op]*Operation, event *Event) error {
	o := byOp[event.Op]
	switch {
	case event.Kind == KindExit:
	case event.Kind == KindCall && event.Call != nil && o == nil:
		byOp[event.Op] = &Operation{
			Op: event.Op, Call: *event.Call, Begin: event.At, End: Forever, Return: Return{Outcome: Open},
		}
	case o == nil || o.End != Forever:
		return fmt.Errorf("%s of %v, which is not under way", event.Kind, event.Op)
	case event.Kind == KindRun:
		o.Runs = append(o.Runs, Run{event.At, event.Run})
	case event.Kind == KindReturn && event.Return != nil:
		o.Return, o.End = *event.Return, event.At
	default:
		return fmt.Errorf("%v: an event of kind %q", event.Op, event.Kind)
	}
	return nil
}
