package idemnats

import (
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem/inbox"
)

func TestNothingStandsBehindAMessageOfItsKeyThatHasLostItsFloor(t *testing.T) {
	t.Parallel()
	var all []*held
	for seq, m := range []struct {
		key  string
		sure bool
	}{{"a", false}, {"a", true}, {"b", true}, {"", false}, {"", true}, {"b", false}, {"b", true}} {
		sure := &atomic.Bool{}
		sure.Store(m.sure)
		all = append(all, &held{Seq: uint64(seq), Delivery: delivery{sure: sure}, Message: inbox.Message{Key: m.key}})
	}
	var places []uint64
	for _, h := range sure(all) {
		places = append(places, h.Seq)
	}
	if diff := cmp.Diff([]uint64{2, 4}, places); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
