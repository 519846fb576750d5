package operation

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// CallOption changes how one Call, or Undo, behaves.
type CallOption func(*callOptions)

type callOptions struct {
	attempts    int           // 0: no bound
	timeout     time.Duration // of each attempt; 0: none
	silence     time.Duration // between two beats; 0: any
	first, most time.Duration // pauses
	err         error
}

const (
	firstPause = 200 * time.Millisecond
	maxPause   = time.Minute
)

// Attempts bounds how often a Call is tried, across callers and processes; the latest of a process that is killed are not counted. Then the operation is parked, unless the call is known not to have
// happened: because it is Asked and the other side says that it has not, and can not any more, or because no attempt was sent. Then the
// last error goes to the function, as one that is Final. The default is no bound.
func Attempts(n int) CallOption {
	return func(o *callOptions) {
		if n < 1 {
			o.err = fmt.Errorf("operation: Attempts(%d): there is one at least", n)
		}
		o.attempts = n
	}
}

// AttemptTimeout bounds how long each attempt may take, and each question of an Asked call, by the end of its context. An attempt that
// fails because of that is one without an answer. The default is no bound. With Keyed it has to be shorter than the window.
func AttemptTimeout(d time.Duration) CallOption {
	return func(o *callOptions) {
		if d <= 0 {
			o.err = fmt.Errorf("operation: AttemptTimeout(%v): a timeout is positive", d)
		}
		o.timeout = d
	}
}

// Pauses sets for how long at most the first pause between two attempts lasts, and the longest. Each is drawn at random, below a limit that
// doubles from one to the next. One of 5 seconds or more frees the caller, or the worker. The default is 200 milliseconds and a minute.
func Pauses(first, most time.Duration) CallOption {
	return func(o *callOptions) {
		if first <= 0 || most < first {
			o.err = fmt.Errorf("operation: Pauses(%v, %v): the first is positive, and no longer than the longest", first, most)
		}
		o.first, o.most = first, most
	}
}

func callOptionsOf(opts []CallOption) callOptions {
	o := callOptions{first: firstPause, most: maxPause}
	for _, opt := range opts {
		if opt == nil {
			o.err = errors.New("operation: nil CallOption")
			continue
		}
		opt(&o)
	}
	return o
}

// check holds the options to the safety of their call.
func (o *callOptions) check(s *Safety) error {
	switch {
	case o.err != nil:
		return o.err
	case s.window > 0 && o.timeout >= s.window:
		return fmt.Errorf("operation: AttemptTimeout(%v) is not shorter than the window of Keyed(%v)", o.timeout, s.window)
	case s.window > 0 && o.silence >= s.window:
		return fmt.Errorf("operation: Heartbeat(%v) is not shorter than the window of Keyed(%v)", o.silence, s.window)
	}
	return nil
}

// bounded returns the context of one attempt.
func (o *callOptions) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if o.timeout > 0 {
		return context.WithTimeout(ctx, o.timeout)
	}
	return ctx, func() {}
}

// pause returns the pause behind the nth attempt.
func (o *callOptions) pause(tries int) time.Duration {
	limit := o.first
	for n := 1; n < tries && limit < o.most; n++ {
		limit += min(limit, o.most-limit)
	}
	return max(rand.N(limit), o.first/10)
}
