package operation

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// The attempt takes many times as long as the time between two beats, and then falls silent.
func TestBeat_KeepsTheAttemptAlive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := Keyed(time.Hour).WithHeartbeat(time.Minute)
		ctx, stop := p.watched(t.Context())
		defer stop()
		derived, cancel := context.WithTimeout(ctx, 100*time.Hour)
		defer cancel()
		for range 100 {
			time.Sleep(time.Minute - time.Nanosecond)
			Beat(derived)
			Beat(context.Background()) // of no call
		}
		if ctx.Err() != nil {
			t.Fatal(context.Cause(ctx))
		}
		time.Sleep(time.Minute + time.Nanosecond)
		if !errors.Is(context.Cause(derived), ErrNoBeat) {
			t.Errorf("behind a minute of silence the cause is %v", context.Cause(derived))
		}
		Beat(derived)
	})
}

func TestBeat_WithoutHeartbeatDoesNothing(t *testing.T) {
	t.Parallel()
	p := Keyed(time.Hour)
	ctx, stop := p.watched(t.Context())
	defer stop()
	Beat(ctx)
	if ctx != t.Context() {
		t.Error("a context of its own")
	}
}
