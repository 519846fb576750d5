package check

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/idem-go/idem/lab/torture/history"
	"github.com/idem-go/idem/lab/torture/ledger"
	"github.com/idem-go/idem/lab/torture/rule"
)

// execution is one execution id: what the calls, the effects and the record say of it.
type execution struct {
	index   int
	id      string
	maker   *history.Operation // the call in whose fn it was seen, nil if in none
	effects []*ledger.Effect
	record  *ledger.Record
	purged  bool                 // its record was
	seen    []*history.Operation // answers with it: of its own call, and replays

	payload, digest             string
	rejected                    bool
	created, completed, expires int64 // 0 if nobody said

	// certain is false if nothing shows that it was committed. It may have been all the same, if it was rejected in a call
	// that never returned.
	certain bool
}

// trace brings together what is known of each execution of the key.
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

// addPossible adds what may have been committed without anybody hearing of it, and without leaving anything behind: a
// rejection, and where a failover loses what was committed, any run of a call that never returned. Others may have been
// refused for its sake in between.
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

// sight adds what one answer, or the record, says of an execution: all must say the same.
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

// ofKey reports whether it happened, and for this key. What a replay brought here from another key has not.
func (x *execution) ofKey() bool {
	return x.certain && (x.maker != nil || x.record != nil || x.purged || len(x.effects) > 0)
}

// latest is a time at which the execution held the key, by the database's clock; 0 if none is known.
func (x *execution) latest() int64 {
	if len(x.effects) > 0 {
		return x.effects[0].Noted
	}
	return x.completed
}

// retainedUntil is a time before which its record cannot have expired; 0 if none is known.
func (x *execution) retainedUntil() int64 {
	switch {
	case x.expires != 0:
		return x.expires
	case len(x.effects) > 0:
		return x.effects[0].Noted + x.effects[0].TTL
	}
	return 0
}

// overlaps reports whether y, which came later, held the key while x was retained.
func (x *execution) overlaps(y *execution) bool {
	return x.retainedUntil() != 0 && y.latest() != 0 && y.latest() < x.retainedUntil()
}
