package operation

import (
	"context"
	"fmt"
	"time"
)

// Heartbeat bounds for how long the function of a Call, or of an Undo, may be silent: each attempt has to call Beat at least that often.
// When no beat has come for d the context of the attempt ends, and context.Cause of it is ErrNoBeat. The attempt then counts as one
// without an answer, as after an AttemptTimeout, and what follows is up to the safety of the call. The two go together: AttemptTimeout
// bounds the whole attempt, however it beats, and Heartbeat notices within d that one that may take hours no longer gets on. The beats
// stay in the process: nothing is written. That a process is gone is noticed by its session, with or without a Heartbeat. The find of an
// Asked call need not beat. The default is no bound. With Keyed it has to be shorter than the window.
func Heartbeat(d time.Duration) CallOption {
	return func(o *callOptions) {
		if d <= 0 {
			o.err = fmt.Errorf("operation: Heartbeat(%v): the time between two beats is positive", d)
		}
		o.silence = d
	}
}

// Beat says that the function of a Call is getting on. ctx is the one that the function was given, or one derived from it. Without a
// Heartbeat it does nothing. A beat behind the end of the context changes nothing.
func Beat(ctx context.Context) {
	if h, ok := ctx.Value(heartKey{}).(*heart); ok {
		h.timer.Reset(h.silence)
	}
}

// heart ends the context of an attempt that falls silent.
type heart struct {
	timer   *time.Timer
	silence time.Duration
}

type heartKey struct{}

// watched returns the context of an attempt that has to beat.
func (o *callOptions) watched(ctx context.Context) (context.Context, context.CancelFunc) {
	if o.silence == 0 {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	h := &heart{silence: o.silence}
	h.timer = time.AfterFunc(o.silence, func() { cancel(ErrNoBeat) })
	return context.WithValue(ctx, heartKey{}, h), func() {
		h.timer.Stop()
		cancel(nil)
	}
}
