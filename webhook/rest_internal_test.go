package webhook

import (
	"testing"
	"time"
)

// An endpoint that answers 503 to one message, and takes others, is not away: the message has failed.
func TestMessageThatAloneFindsItsEndpointAwayHasFailed(t *testing.T) {
	t.Parallel()
	var r rest
	now := time.Unix(1000, 0)
	unavailable := &StatusError{Status: 503}
	note := func(id string, err error) bool {
		now = now.Add(time.Hour)
		return r.note("t", id, err, now)
	}
	for _, id := range []string{"a", "a", "b"} {
		if !note(id, unavailable) {
			t.Error("an attempt counts, although the endpoint has taken nothing since")
		}
	}
	note("c", nil)
	if note("a", unavailable) || note("b", unavailable) || r.left("t", now) > 0 {
		t.Error("the endpoint is away, although it has taken another message")
	}
	if !note("a", unavailable) {
		t.Error("it counts once more, although the endpoint has taken nothing since")
	}
}
