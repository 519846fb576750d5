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
	maxRetryAfter = time.Hour // the longest time that is taken from a header Retry-After
	maxEndpoints  = 10_000    // with more endpoints, those whose backoff has ended are removed
	maxRefused    = 64        // maximum number of IDs in backoff.refused
)

// backoffs contains the backoffs of unavailable endpoints, by topic.
type backoffs struct {
	mu        sync.Mutex
	endpoints map[string]backoff
}

type backoff struct {
	until time.Time
	last  time.Duration

	// refused contains the IDs of the messages for which the endpoint was unavailable. The value is
	// true if the endpoint has answered another message since.
	refused map[string]bool
}

// check returns an error marked by RetryLater if an endpoint has a backoff.
func (b *backoffs) check(topic string, now time.Time) error {
	if left := b.left(topic, now); left > 0 {
		return outbox.RetryLater(fmt.Errorf("%w, for another %v", ErrAway, left.Round(time.Millisecond)), left)
	}
	return nil
}

// left returns the time until the backoff of an endpoint ends.
func (b *backoffs) left(topic string, now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.endpoints[topic].until.Sub(now)
}

// note records the result of an attempt, and reports whether the endpoint is unavailable. Failures
// of concurrent attempts double the backoff only once. If the endpoint was unavailable for this
// message before and has answered another message since, the message itself is the likely cause:
// note returns false, and the message has failed.
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
		return false // the attempt did not reach the endpoint
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

// isUnavailable reports whether the cause of a failed attempt is the endpoint and not the message.
// The result after is the duration of the header Retry-After.
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
