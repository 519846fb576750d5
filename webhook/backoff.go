package webhook

import (
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/idem-go/idem/idemclient"
	"github.com/idem-go/idem/outbox"
)

const (
	minBackoff    = time.Second
	maxBackoff    = time.Minute
	maxRetryAfter = time.Hour // limit of a Retry-After
	maxEndpoints  = 10_000    // beyond that, endpoints whose backoff is over are removed
	maxRefused    = 64        // of an endpoint
)

// backoffs are the backoffs of unavailable endpoints, by topic.
type backoffs struct {
	mu        sync.Mutex
	endpoints map[string]backoff
}

type backoff struct {
	until time.Time
	last  time.Duration

	// refused has the IDs of the messages for which the endpoint was unavailable. The value says
	// whether the endpoint has accepted another message since.
	refused map[string]bool
}

// check returns an error if an endpoint has a backoff.
func (b *backoffs) check(topic string, now time.Time) error {
	if left := b.left(topic, now); left > 0 {
		return outbox.RetryLater(fmt.Errorf("%w, for another %v", ErrAway, left.Round(time.Millisecond)), left)
	}
	return nil
}

// left returns the rest of the backoff of an endpoint.
func (b *backoffs) left(topic string, now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.endpoints[topic].until.Sub(now)
}

// note stores the result of an attempt, and reports whether the endpoint is unavailable. Concurrent
// attempts double the backoff once. If the endpoint has accepted another message since it was
// unavailable for this one, note returns false: the message has failed.
func (b *backoffs) note(topic, id string, err error, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	after, unavailable := isUnavailable(err)
	e := b.endpoints[topic]
	if unavailable && e.refused[id] {
		e.refused[id] = false
		return false
	}
	if _, answered := errors.AsType[*StatusError](err); err != nil && !answered && !unavailable {
		return false // the attempt has not reached the endpoint
	}
	active := e.until.After(now)
	switch {
	case !unavailable:
		for other := range e.refused {
			e.refused[other] = true
		}
		if delete(e.refused, id); !active && len(e.refused) == 0 {
			delete(b.endpoints, topic)
		} else if !active {
			b.endpoints[topic] = backoff{refused: e.refused}
		}
		return false
	case !active:
		e.last = min(max(2*e.last, minBackoff), maxBackoff)
		e.until = now.Add(e.last)
	}
	if until := now.Add(min(after, maxRetryAfter)); until.After(e.until) {
		e.until = until
	}
	if e.refused == nil || len(e.refused) >= maxRefused {
		e.refused = map[string]bool{}
	}
	e.refused[id] = false
	b.set(topic, e, now)
	return true
}

func (b *backoffs) set(topic string, e backoff, now time.Time) {
	if b.endpoints == nil {
		b.endpoints = map[string]backoff{}
	}
	if len(b.endpoints) >= maxEndpoints {
		for topic, e := range b.endpoints {
			if now.After(e.until) {
				delete(b.endpoints, topic)
			}
		}
	}
	b.endpoints[topic] = e
}

// isUnavailable reports whether an attempt has failed because of the endpoint and not because of
// the message. after is the duration of Retry-After.
func isUnavailable(err error) (after time.Duration, unavailable bool) {
	if refused, ok := errors.AsType[*StatusError](err); ok {
		switch refused.Status {
		case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
			return refused.RetryAfter, true
		}
		return 0, false
	}
	failed, ok := errors.AsType[*idemclient.Error](err)
	return 0, ok && failed.Stop != idemclient.StopPermanent
}
