package operation

import (
	"strconv"
	"testing"

	"github.com/idem-go/idem/internal/store"
)

func TestMemoryOfWhatCouldNotBeRecordedIsBounded(t *testing.T) {
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
