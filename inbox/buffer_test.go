package inbox_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem/inbox"
)

var errBufferAway = errors.New("the database is away")

// holding returns a hand with messages whose keys are given, in another order than that of their source.
func holding(ordered bool, keys ...string) *inbox.Buffer[string] {
	h := &inbox.Buffer[string]{Ordered: ordered}
	for i := len(keys) - 1; i >= 0; i-- {
		h.Put(&inbox.Buffered[string]{Seq: uint64(i), Delivery: "first", Message: inbox.Message{Key: keys[i]}})
	}
	return h
}

func seqs(all []*inbox.Buffered[string]) (seqs []uint64) {
	for _, held := range all {
		seqs = append(seqs, held.Seq)
	}
	return seqs
}

// round handles what is ready, with outcomes that are given.
func round(t *testing.T, h *inbox.Buffer[string], err error, outcomes ...inbox.Outcome) (settled []uint64) {
	t.Helper()
	ready, _ := h.Ready(h.All(), time.Now(), len(outcomes))
	got := h.Round(t.Context(), ready, func(context.Context, []inbox.Message) ([]inbox.Outcome, error) { return outcomes, err },
		func(held *inbox.Buffered[string], _ inbox.Outcome) { settled = append(settled, held.Seq) })
	if !errors.Is(got, err) {
		t.Errorf("%v, want %v", got, err)
	}
	return settled
}

func TestMessageWaitsBehindOneOfItsKeyThatHasAPause(t *testing.T) {
	t.Parallel()
	now := time.Now()
	later := inbox.Outcome{State: inbox.Retry, RetryAt: now.Add(time.Hour)}
	for _, test := range []struct {
		name         string
		ordered      bool
		settled      []uint64
		ready, after []uint64
	}{
		{"in order", true, nil, []uint64{1, 3}, []uint64{0, 1, 3}},
		{"without order", false, []uint64{0}, []uint64{1, 2, 3, 4}, []uint64{1, 2, 3, 4}},
	} {
		h := holding(test.ordered, "a", "b", "a", "", "a")
		if diff := cmp.Diff(test.settled, round(t, h, nil, later)); diff != "" {
			t.Errorf("%s, settled (-want +got):\n%s", test.name, diff)
		}
		ready, next := h.Ready(h.All(), now, 10)
		if diff := cmp.Diff(test.ready, seqs(ready)); diff != "" {
			t.Errorf("%s, ready (-want +got):\n%s", test.name, diff)
		}
		if test.ordered != next.Equal(later.RetryAt) {
			t.Errorf("%s: the next one is due at %v", test.name, next)
		}
		ready, _ = h.Ready(h.All(), later.RetryAt.Add(time.Second), 10)
		if diff := cmp.Diff(test.after, seqs(ready)); diff != "" {
			t.Errorf("%s, ready after the pause (-want +got):\n%s", test.name, diff)
		}
	}
}

func TestSeveralMessagesOfAKeyThatHaveFailedAreTriedWithThoseBetweenThem(t *testing.T) {
	t.Parallel()
	h := holding(true, "a", "a", "a", "a", "b")
	at := time.Now().Add(time.Hour)
	round(t, h, nil, inbox.Outcome{State: inbox.Retry, RetryAt: at}, inbox.Outcome{State: inbox.Retry, RetryAt: at, Err: inbox.ErrBehind},
		inbox.Outcome{State: inbox.Retry, RetryAt: at.Add(time.Hour)})
	ready, _ := h.Ready(h.All(), at.Add(time.Second), 10)
	if diff := cmp.Diff([]uint64{0, 1, 2, 4}, seqs(ready)); diff != "" {
		t.Error(diff)
	}
}

func TestWhatIsSettledLeavesTheBuffer(t *testing.T) {
	t.Parallel()
	h := holding(true, "a", "b", "c", "d")
	settled := round(t, h, nil, inbox.Outcome{State: inbox.Done}, inbox.Outcome{State: inbox.Duplicate}, inbox.Outcome{State: inbox.Dead})
	if diff := cmp.Diff([]uint64{0, 1, 2}, settled); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]uint64{3}, seqs(h.All())); diff != "" {
		t.Error(diff)
	}
}

func TestWhatAnErrorHasLeftStays(t *testing.T) {
	t.Parallel()
	h := holding(false, "a", "b")
	settled := round(t, h, errBufferAway, inbox.Outcome{State: inbox.Done}, inbox.Outcome{State: inbox.Retry})
	if diff := cmp.Diff([]uint64{0}, settled); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]uint64{1}, seqs(h.All())); diff != "" {
		t.Error(diff)
	}
}

func TestWhatAConsumerThatPausesHasNotTriedStaysUntilThePauseIsOver(t *testing.T) {
	t.Parallel()
	h := holding(false, "a", "b")
	later := time.Now().Add(time.Hour)
	settled := round(t, h, nil, inbox.Outcome{State: inbox.Retry, RetryAt: later}, inbox.Outcome{State: inbox.Retry, RetryAt: later, Err: inbox.ErrPaused})
	if diff := cmp.Diff([]uint64{0}, settled); diff != "" {
		t.Error(diff)
	}
	if ready, next := h.Ready(h.All(), time.Now(), 1); len(ready) > 0 || !next.Equal(later) {
		t.Errorf("%d are ready, and the next one at %v", len(ready), next)
	}
	if ready, _ := h.Ready(h.All(), later, 2); len(ready) != 1 {
		t.Errorf("%d are ready then", len(ready))
	}
}

func TestMessageThatComesAgainKeepsItsPauseAndIsSettledByItsLatestDelivery(t *testing.T) {
	t.Parallel()
	h := holding(true, "a")
	round(t, h, nil, inbox.Outcome{State: inbox.Retry, RetryAt: time.Now().Add(time.Hour)})
	h.Put(&inbox.Buffered[string]{Delivery: "second", Message: inbox.Message{Key: "a"}})
	if ready, _ := h.Ready(h.All(), time.Now(), 1); len(ready) > 0 {
		t.Error("its pause is over")
	}
	if all := h.All(); len(all) != 1 || all[0].Delivery != "second" {
		t.Errorf("the hand has %d messages", len(all))
	}
}
