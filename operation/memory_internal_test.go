package operation

import (
	"strconv"
	"testing"

	"github.com/idem-go/idem/internal/store"
)

func TestMemory_IsBounded(t *testing.T) {
	t.Parallel()
	var m memory
	for i := range 3 * maxUnkept {
		m.put(strconv.Itoa(i), map[int]store.Step{1: {Seq: i}})
		if i%3 == 0 {
			m.put(strconv.Itoa(i), map[int]store.Step{1: {Seq: i}}) // again
		}
	}
	if len(m.returned) > maxUnkept || len(m.ids) > maxUnkept {
		t.Errorf("%d operations are remembered, in a list of %d", len(m.returned), len(m.ids))
	}
	last := strconv.Itoa(3*maxUnkept - 1)
	if got, ok := m.take(last); !ok || got[1].Seq != 3*maxUnkept-1 {
		t.Errorf("the last one is %v, %t", got, ok)
	}
	if _, ok := m.take(last); ok {
		t.Error("what was taken is still there")
	}
}

// In an outage the same operation is put in again after each attempt.
func TestMemory_KeepsWhatIsPutAgain(t *testing.T) {
	t.Parallel()
	var m memory
	m.put("another", map[int]store.Step{1: {Seq: 7}})
	for range 3 * maxUnkept {
		m.take("the one")
		m.put("the one", map[int]store.Step{1: {Seq: 8}})
	}
	for id, seq := range map[string]int{"another": 7, "the one": 8} {
		if got, ok := m.take(id); !ok || got[1].Seq != seq {
			t.Errorf("of %s is remembered %v, %t", id, got, ok)
		}
	}
}
