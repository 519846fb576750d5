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

// For how long an endpoint that is away is left alone.
const (
	minRest      = time.Second
	maxRest      = time.Minute
	maxAskedRest = time.Hour // if it asks for it
	maxResting   = 10_000    // endpoints that are remembered; beyond, those whose time has come are forgotten
)

// rest remembers which endpoints are left alone, by their topic.
type rest struct {
	mu   sync.Mutex
	away map[string]pause
}

type pause struct {
	until time.Time
	long  time.Duration
}

// check says whether an endpoint has to be left alone.
func (r *rest) check(topic string, now time.Time) error {
	if left := r.left(topic, now); left > 0 {
		return outbox.RetryLater(fmt.Errorf("%w, for another %v", ErrAway, left.Round(time.Millisecond)), left)
	}
	return nil
}

// left returns for how long an endpoint has to be left alone.
func (r *rest) left(topic string, now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.away[topic].until.Sub(now)
}

// note learns from an attempt. Several that were under way together count as one.
func (r *rest) note(topic string, err error, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	asked, away := isAway(err)
	p := r.away[topic]
	resting := p.until.After(now)
	switch {
	case !away && resting:
		return
	case !away:
		delete(r.away, topic)
		return
	case !resting:
		p.long = min(max(2*p.long, minRest), maxRest)
		p.until = now.Add(p.long)
	}
	if until := now.Add(min(asked, maxAskedRest)); until.After(p.until) {
		p.until = until
	}
	r.remember(topic, p, now)
}

func (r *rest) remember(topic string, p pause, now time.Time) {
	if r.away == nil {
		r.away = map[string]pause{}
	}
	if len(r.away) >= maxResting {
		r.forget(now)
	}
	r.away[topic] = p
}

func (r *rest) forget(now time.Time) {
	for topic, pause := range r.away {
		if now.After(pause.until) {
			delete(r.away, topic)
		}
	}
}

// isAway reports whether an attempt has failed because of the endpoint and not because of the message, and for how long the
// endpoint has asked to be left alone.
func isAway(err error) (asked time.Duration, away bool) {
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
