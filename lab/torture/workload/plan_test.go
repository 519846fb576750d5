package workload

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem/lab/torture/history"
	"github.com/idem-go/idem/lab/torture/ledger"
)

func plans(seed uint64, n int) []*plan {
	r := rand.New(rand.NewPCG(seed, 0))
	c := &Config{Keys: 4, KeyLife: time.Second}
	pools := []*pool{{name: "one"}, {name: "two"}}
	var all []*plan
	for i := range n {
		all = append(all, newPlan(r, c, pools, time.Duration(i)*time.Millisecond))
	}
	return all
}

// Every kind of call must occur.
func TestPlansReachEverything(t *testing.T) {
	t.Parallel()
	seen := make(map[string]int)
	keyIn := make(map[string]map[string]bool)
	short := 0
	for _, p := range plans(1, 5000) {
		for _, what := range []string{
			"verb " + p.verb, "fn " + p.fn, "payload " + p.payload, "isolation " + string(p.txOptions.IsoLevel),
			"pool " + p.pool.name, "wait " + p.wait.String(), fmt.Sprintf("replay likely %v", p.likely), p.sealer.Name,
			fmt.Sprintf("batch of %d", len(p.batch)+1),
		} {
			seen[what]++
		}
		if keyIn[p.key] == nil {
			keyIn[p.key] = make(map[string]bool)
		}
		keyIn[p.key][p.scope] = true
		if p.ttl < time.Second {
			short++
		}
		if p.timeout < 100*time.Millisecond {
			seen["deadline"]++
		}
	}
	want := []string{"deadline", "payload A", "payload B", "pool one", "pool two", "wait 0s", "wait 20ms", "wait 1s", "wait 3s",
		"replay likely true", "replay likely false", fmt.Sprintf("batch of %d", batchSize),
		"isolation ", "isolation read committed", "isolation repeatable read", "isolation serializable"}
	for _, s := range ledger.Sealers {
		want = append(want, s.Name)
	}
	for _, w := range verbs {
		want = append(want, "verb "+w.value)
	}
	for _, w := range fns {
		want = append(want, "fn "+w.value)
	}
	for _, what := range want {
		if seen[what] == 0 {
			t.Errorf("never: %s", what)
		}
	}
	both := 0
	for _, scopes := range keyIn {
		if len(scopes) > 1 {
			both++
		}
	}
	if both == 0 || short == 0 || len(keyIn) < 10 {
		t.Errorf("%d keys, %d in two scopes, %d calls with a short TTL", len(keyIn), both, short)
	}
}

func TestPlansFollowFromTheSeed(t *testing.T) {
	t.Parallel()
	describe := func(seed uint64) []history.Call {
		var calls []history.Call
		for _, p := range plans(seed, 200) {
			c := *p.call()
			c.Wall = 0
			calls = append(calls, c)
		}
		return calls
	}
	if diff := cmp.Diff(describe(7), describe(7)); diff != "" {
		t.Error(diff)
	}
	if cmp.Equal(describe(7), describe(8)) {
		t.Error("another seed makes the same plans")
	}
}

// Duplicates have the same hash, and so have requests with other keys. A hash check must not hide
// that a duplicate gets the answer of another key.
func TestTheHashIsOfThePayload(t *testing.T) {
	t.Parallel()
	a, b, other := &plan{key: "1", payload: "A"}, &plan{key: "2", payload: "A"}, &plan{key: "1", payload: "B"}
	if a.hash() != b.hash() || a.hash() == other.hash() {
		t.Error("the hash is of something else")
	}
}
