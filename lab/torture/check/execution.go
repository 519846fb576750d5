package check

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/idem-go/idem/lab/torture/history"
	"github.com/idem-go/idem/lab/torture/ledger"
	"github.com/idem-go/idem/lab/torture/rule"
)

// execution joins what the calls, the effects and the record say about one execution id.
type execution struct {
	index   int
	id      string
	maker   *history.Operation // the call whose fn got the id; nil if none did
	effects []*ledger.Effect
	record  *ledger.Record
	purged  bool                 // its record was purged
	seen    []*history.Operation // calls that returned its result, as their own or as a replay

	payload, digest             string
	rejected                    bool
	created, completed, expires int64 // 0 if unknown

	// certain reports that the execution is known to be committed. An uncertain execution may have
	// been committed too: a rejection leaves no effect, and its call may never have returned.
	certain bool
}

// trace joins what is known of each execution of the key, and sorts the executions by time.
func (k *key) trace() {
	k.byID, k.maker = make(map[string]*execution), make(map[string]*history.Operation)
	for _, o := range k.operations {
		for _, run := range o.Runs {
			k.maker[run.ExecutionID] = o
		}
	}
	for _, e := range k.effects {
		x := k.execution(e.ExecutionID)
		x.effects, x.digest, x.payload, x.certain = append(x.effects, e), e.Digest, e.Payload, true
	}
	for _, o := range k.operations {
		if o.Outcome.Answered() {
			x := k.execution(o.ExecutionID)
			x.seen, x.certain = append(x.seen, o), true
			k.sight(x, &o.Return, o)
		}
	}
	if r := k.record; r != nil {
		x := k.execution(r.ExecutionID)
		x.record, x.certain = r, true
		k.sight(x, &history.Return{
			Rejected: r.State == "failed", Digest: r.Digest, Created: r.Created, Completed: r.Completed, Expires: r.Expires,
		}, nil)
	}
	for _, p := range k.purged {
		x := k.execution(p.ExecutionID)
		x.purged, x.certain = true, true
		if x.created == 0 {
			x.created, x.completed, x.expires, x.rejected = p.Created, p.Completed, p.Expires, p.State == "failed"
		}
	}
	k.addPossible()
	slices.SortFunc(k.executions, func(a, b *execution) int {
		return cmp.Or(cmp.Compare(a.latest(), b.latest()), cmp.Compare(a.id, b.id))
	})
	for i, x := range k.executions {
		x.index = i
	}
}

// addPossible adds executions that may have been committed although no call returned their result
// and nothing of them is left. They may be the only explanation of a mismatch that another call
// got.
//
// There are two cases: a rejection whose call has no known outcome, and, if a failover loses
// commits, any run of a call without a known outcome.
func (k *key) addPossible() {
	for _, o := range k.operations {
		if o.Outcome != history.Open && o.Outcome != history.Unknown {
			continue
		}
		for _, run := range o.Runs {
			switch {
			case o.Fn == history.Reject:
				x := k.execution(run.ExecutionID)
				x.rejected = x.rejected || !x.certain
			case len(k.options.Losses) > 0:
				k.execution(run.ExecutionID)
			}
		}
	}
}

// execution returns the execution with the id, and creates it if necessary.
func (k *key) execution(id string) *execution {
	x, ok := k.byID[id]
	if !ok {
		x = &execution{id: id, maker: k.maker[id]}
		if x.maker != nil {
			x.payload = x.maker.Payload
		}
		k.byID[id] = x
		k.executions = append(k.executions, x)
	}
	return x
}

// sight adds what an answer says about an execution, or what the record says if the parameter by is
// nil. All sources must agree on the digest, the times, and whether the execution was rejected.
func (k *key) sight(x *execution, r *history.Return, by *history.Operation) {
	first := x.created == 0
	if first {
		x.created, x.completed, x.expires, x.rejected = r.Created, r.Completed, r.Expires, r.Rejected
	}
	if x.digest == "" {
		x.digest = r.Digest
	}
	var broken rule.Rule
	switch {
	case x.digest != r.Digest:
		broken = rule.Bytes
	case !first && (x.created != r.Created || x.completed != r.Completed || x.expires != r.Expires):
		broken = rule.Times
	case x.rejected != r.Rejected:
		broken = rule.Rejection
	default:
		return
	}
	detail := fmt.Sprintf("operation %s, whose response is %s", x.id, x.digest)
	if by == nil {
		detail += fmt.Sprintf("; the record has %s", r.Digest)
	}
	k.violate(broken, detail, append(slices.Clone(x.seen), x.maker, by)...)
}

// ofKey reports whether the execution certainly happened for this key. An execution that only a
// replay mentions may belong to another key.
func (x *execution) ofKey() bool {
	return x.certain && (x.maker != nil || x.record != nil || x.purged || len(x.effects) > 0)
}

// latest returns a time at which the execution held the key, by the clock of the database, or 0 if
// none is known.
func (x *execution) latest() int64 {
	if len(x.effects) > 0 {
		return x.effects[0].Noted
	}
	return x.completed
}

// retainedUntil returns a time before which the record cannot have expired, or 0 if none is known.
func (x *execution) retainedUntil() int64 {
	switch {
	case x.expires != 0:
		return x.expires
	case len(x.effects) > 0:
		return x.effects[0].Noted + x.effects[0].TTL
	}
	return 0
}

// overlaps reports whether y, a later execution, held the key while the record of x was retained.
func (x *execution) overlaps(y *execution) bool {
	return x.retainedUntil() != 0 && y.latest() != 0 && y.latest() < x.retainedUntil()
}
