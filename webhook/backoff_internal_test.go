package webhook

import (
	"errors"
	"testing"
	"time"
)

// An endpoint that answers 503 to one message and accepts others is not unavailable: the message
// has failed.
func TestBackoffs_CountAgainstASingleMessage(t *testing.T) {
	t.Parallel()
	var b backoffs
	now := time.Unix(1000, 0)
	unavailable := &StatusError{Status: 503}
	note := func(id string, err error) bool {
		now = now.Add(time.Hour)
		return b.note("t", id, err, now)
	}
	for _, id := range []string{"a", "a", "b"} {
		if !note(id, unavailable) {
			t.Error("an attempt counts, although the endpoint has accepted nothing since")
		}
	}
	note("d", errors.New("the attempt has not reached the endpoint"))
	if !note("a", unavailable) {
		t.Error("an attempt counts, although the endpoint was not reached since")
	}
	note("c", nil)
	if note("a", unavailable) || note("b", unavailable) || b.left("t", now) > 0 {
		t.Error("the endpoint is unavailable, although it has accepted another message")
	}
	if !note("a", unavailable) {
		t.Error("another attempt counts, although the endpoint has accepted nothing since")
	}
}
