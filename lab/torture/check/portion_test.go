package check

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/idem-go/idem/lab/torture/history"
)

// written writes a run on many keys to files. Some keys break a promise.
func written(t *testing.T) (histories []string, state string) {
	t.Helper()
	dir := t.TempDir()
	create := func(name string) (*history.Writer, string) {
		path := filepath.Join(dir, name)
		w, err := history.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		return w, path
	}
	calls, path := create("worker-0")
	rows, state := create("state")
	n := uint32(0)
	for key := range 40 {
		s := &randomStory(uint64(key)).story
		if key%10 == 0 && len(s.rows) > 0 {
			s.rows = s.rows[1:]
		}
		name := fmt.Sprint("key ", key)
		ops := make(map[history.Op]history.Op)
		for _, o := range s.operations {
			n++
			ops[o.Op] = history.NewOp(0, 0, n)
		}
		for _, o := range s.operations {
			appendCall(calls, o, name, ops)
		}
		for _, row := range s.rows {
			row.Shard = history.ShardOf(testScope, name)
			switch {
			case row.Effect != nil:
				e := *row.Effect
				e.Key, e.Op = name, ops[e.Op]
				row.Effect = &e
			case row.Record != nil:
				r := *row.Record
				r.Key = name
				row.Record = &r
			case row.Outer != nil:
				o := *row.Outer
				o.Key, o.Op = name, ops[o.Op]
				row.Outer = &o
			}
			rows.Append(row)
		}
	}
	for _, w := range []*history.Writer{calls, rows} {
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return []string{path}, state
}

func appendCall(w *history.Writer, o *history.Operation, key string, ops map[history.Op]history.Op) {
	c := o.Call
	c.Key = key
	shard := history.ShardOf(c.Scope, c.Key)
	w.Append(history.Event{Shard: shard, At: o.Begin, Kind: history.KindCall, Op: ops[o.Op], Call: &c})
	for _, run := range o.Runs {
		w.Append(history.Event{Shard: shard, At: run.At, Kind: history.KindRun, Op: ops[o.Op], Run: run.ExecutionID})
	}
	if r := o.Return; r.Outcome != history.Open {
		r.Maker = ops[r.Maker]
		w.Append(history.Event{Shard: shard, At: o.End, Kind: history.KindReturn, Op: ops[o.Op], Return: &r})
	}
}

// The size of the portions must not change the result.
func TestARunIsJudgedInPortionsAsItIsAsAWhole(t *testing.T) {
	t.Parallel()
	histories, state := written(t)
	judge := func(size int64) *Result {
		result, err := files(histories, state, size, Options{})
		if err != nil {
			t.Fatal(err)
		}
		slices.SortFunc(result.Violations, func(a, b Violation) int { return cmp.Compare(a.String(), b.String()) })
		return result
	}
	whole := judge(1 << 40)
	if len(whole.Violations) == 0 || whole.Keys != 40 {
		t.Errorf("%d violations, %d keys: nothing is compared", len(whole.Violations), whole.Keys)
	}
	for _, size := range []int64{8 << 10, 64 << 10} {
		if diff := gocmp.Diff(whole, judge(size), cmpopts.IgnoreFields(Result{}, "Took")); diff != "" {
			t.Error(diff)
		}
	}
	left, err := filepath.Glob(filepath.Join(filepath.Dir(state), "portions-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v (%v)", left, err)
	}
}
