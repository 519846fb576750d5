package idem_test

import (
	"context"
	"testing"

	"github.com/idem-go/idem"
)

// A follower that may not wait counts on this: a leader that has only looked for the record may yet wait for the pool.
func TestOnlyTheConnectionOfAClaimCountsAsHad(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	looked, claimed, err := idem.AskersTold(context.Background(), l.pool, scope, "k", hashA)
	if err != nil || looked != 0 || claimed != 1 {
		t.Errorf("told %d times of a look and %d times of a claim, %v", looked, claimed, err)
	}
}
