package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/idem-go/idem/internal/guard"
	"github.com/idem-go/idem/internal/repeat"
)

// hangLimit is how long a call of a Publisher may go on after the end of its context.
const hangLimit = 5 * time.Second

// errHung says that the Publisher has not returned. Its messages may be published at any time.
var errHung = errors.New("the Publisher has not returned although its context has ended")

// call is one call of a Publisher, in a goroutine of its own: it cannot be trusted to return.
type call struct {
	ended chan struct{}
	err   error
}

func startCall(ctx context.Context, publisher Publisher, messages []Message) *call {
	c := &call{ended: make(chan struct{}), err: guard.Ended()}
	go func() {
		defer close(c.ended)
		c.err = guard.Call(func() error { return publishVia(ctx, publisher, messages) })
	}()
	return c
}

// caller calls a Publisher for one destination.
type caller struct {
	publisher   Publisher
	config      *RelayConfig
	ownership   *ownership
	abort       context.Context // ends when this process has lost its ownership
	sole        bool            // it is the only destination: a call that hangs is left to another process
	size        int             // how many messages the Publisher gets at a time
	trial       trial
	awaySince   time.Time // since when nothing was published; zero if the last call has published something
	publishedAt time.Time // when a message was last published
	answeredAt  time.Time // or was named
	lonesFrom   time.Time // when another message may be tried again that was found to be to blame
	loneAt      time.Time // when a message was last found to be to blame, or one that was has failed again
}

// keepsOrder reports whether the Publisher does, and says so.
func (c *caller) keepsOrder() (keeps bool) {
	guard.Do(c.config.Logger, "outbox: KeepsOrder of the Publisher", func() { keeps = keepsOrder(c.publisher) })
	return keeps
}

// fit makes calls smaller while the Publisher has trouble with them as a whole, and larger again.
func (c *caller) fit(err error) {
	if err != nil {
		c.size = max(c.size/2, 1)
		return
	}
	c.size = min(2*c.size, c.config.BatchSize)
}

// lately is for how long a destination that has answered is taken to be there: so what fails meanwhile is likely to be bad.
const lately = 5 * time.Second

func (c *caller) isThere() bool { return time.Since(c.answeredAt) < lately }

// answer is what came of a call.
type answer struct {
	err  error
	over bool  // the context of the call has ended
	hung *call // after errHung: it goes on
}

// publish makes a call. Behind a pooler it makes none unless this process was seen lately.
func (c *caller) publish(ctx context.Context, messages []Message) answer {
	if !c.ownership.trusted() {
		return answer{err: errLost}
	}
	calling, cancel := context.WithTimeout(repeat.With(c.abort, repeat.Of(ctx)), c.config.PublishTimeout)
	defer cancel()
	under := startCall(calling, c.publisher, messages)
	stopped, hanging := ctx.Done(), calling.Done()
	var draining, patience <-chan time.Time
	for {
		select {
		case <-under.ended:
			return answer{err: under.err, over: calling.Err() != nil}
		case <-stopped:
			stopped, draining = nil, time.After(c.config.Drain)
		case <-draining:
			draining = nil
			cancel()
		case <-hanging:
			hanging, patience = nil, time.After(hangLimit)
		case <-patience:
			if c.sole || ctx.Err() != nil || c.abort.Err() != nil {
				return answer{err: errHung, over: true, hung: under}
			}
			c.config.Logger.Error("outbox: the Publisher has not returned although its context has ended: nothing else leaves for this destination",
				"topic", messages[0].Topic)
			patience = time.After(signPause)
		}
	}
}

// verdict is what a Publisher has answered, by the index of a message.
type verdict struct {
	failed  map[int]error // they are to blame
	away    map[int]error
	unsent  map[int]bool
	open    map[int]bool // they are not published, and the context of the call has ended
	err     error        // blames none
	unknown bool         // whether those were published that are not named
}

// sortOut sorts out what a Publisher has answered. That a context has ended is no message's fault if it is that of the call.
func sortOut(messages []Message, a answer) verdict {
	named, rest := namedIn(a.err)
	if named == nil || len(named.Failed) == 0 {
		return verdict{err: a.err, unknown: a.err != nil}
	}
	v := verdict{err: rest, unknown: rest != nil, failed: map[int]error{}, away: map[int]error{}, unsent: map[int]bool{}, open: map[int]bool{}}
	met := 0
	for i, m := range messages {
		reason, ok := named.Failed[m.ID]
		if !ok {
			continue
		}
		met++
		_, isAway := errors.AsType[*AwayError](reason)
		switch {
		case reason == nil:
			v.failed[i] = errors.New("the Publisher gave no reason")
		case errors.Is(reason, ErrUnsent):
			v.unsent[i] = true
		case isAway:
			v.away[i] = reason
		case a.over && ended(reason):
			v.open[i], v.err = true, errors.Join(v.err, reason)
		default:
			v.failed[i] = reason
		}
	}
	if met < len(named.Failed) { // whatever it takes for the ID of a message: of the others it may be one that has failed
		strangers := fmt.Errorf("the Publisher has named %d messages that it was not given", len(named.Failed)-met)
		v.err, v.unknown = errors.Join(rest, strangers), true
	}
	return v
}

// ended reports whether an error only says that a context is over.
func ended(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

func (c *call) wait() error {
	<-c.ended
	return c.err
}
