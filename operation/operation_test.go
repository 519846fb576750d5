package operation_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem"
)

func TestDo_ExecutesOnceAndReplays(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	checkout := s.checkout()
	first, err := checkout.Do(t.Context(), s.pool, scope, "k", hashA, "book")
	if err != nil || first.Replayed || first.Status != 201 {
		t.Fatal(first, err)
	}
	second, err := checkout.Do(t.Context(), s.pool, scope, "k", hashA, "book")
	if err != nil || !second.Replayed {
		t.Fatal(second, err)
	}
	first.Replayed = true
	if diff := cmp.Diff(first, second); diff != "" {
		t.Errorf("(-first +second):\n%s", diff)
	}
	s.wantOnce("book")
	entry, err := idem.Lookup(t.Context(), s.pool, scope, "k")
	if err != nil || entry.State != idem.StateCompleted || entry.ExecutionID != first.ExecutionID {
		t.Error(entry, err)
	}
}
