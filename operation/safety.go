package operation

import (
	"context"
	"time"
)

// Safety says what to do with a Call of which it is not known whether it happened: the process was killed in it, its answer was
// lost, or it returned an error that is neither Final nor NotSent. It is made by Keyed or Asked, or is Once.
type Safety struct {
	window time.Duration // Keyed: how long the other side knows a key
	find   func(ctx context.Context, key string) (value any, done bool, err error)
	once   bool
}

// Keyed says that the other side knows a key again for as long as window, and answers a second call with the first one's
// outcome. Such a call is simply made again, with the same key; after the window the operation is parked. The window counts
// from the commit before the first attempt. Most providers promise 24 hours: take an hour less. An error that is Final is taken for the answer
// of the other side for the key, and so for that of every attempt before it.
func Keyed(window time.Duration) Safety { return Safety{window: window} }

// Asked says that the other side can be asked for the outcome of a key. find returns the value of a call that has happened, with
// done; done is false if it has not happened, and can not any more; an error that is Final says that the other side has refused it, and goes to
// the function; any other error says that this is still unknown, and find is called again after a pause.
func Asked[T any](find func(ctx context.Context, key string) (value T, done bool, err error)) Safety {
	if find == nil {
		return Safety{}
	}
	return Safety{find: func(ctx context.Context, key string) (any, bool, error) {
		value, done, err := find(ctx, key)
		return value, done, err
	}}
}

// Once says that the call must not be made twice, whatever happens: if its outcome is unknown the operation is parked, and a
// person decides. An attempt that was NotSent is followed by another one.
var Once = Safety{once: true}

func (s *Safety) isValid() bool { return s.once || s.find != nil || s.window > 0 }
