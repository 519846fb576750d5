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
	met   map[string]bool // the messages that have found it away, by ID: whether it has taken another one since
}

const maxMet = 64 // for each endpoint

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

// note learns from an attempt, and reports whether the endpoint is away. Several that were under way together count as one. If the endpoint
// has taken another message since it was away for this one, the message has failed.
func (r *rest) note(topic, id string, err error, now time.Time) (is bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	asked, away := isAway(err)
	p := r.away[topic]
	if away && p.met[id] {
		p.met[id] = false
		return false
	}
	resting := p.until.After(now)
	switch {
	case !away:
		for other := range p.met {
			p.met[other] = true
		}
		if delete(p.met, id); !resting && len(p.met) == 0 {
			delete(r.away, topic)
		} else if !resting {
			r.away[topic] = pause{met: p.met}
		}
		return false
	case !resting:
		p.long = min(max(2*p.long, minRest), maxRest)
		p.until = now.Add(p.long)
	}
	if until := now.Add(min(asked, maxAskedRest)); until.After(p.until) {
		p.until = until
	}
	if p.met == nil || len(p.met) >= maxMet {
		p.met = map[string]bool{}
	}
	p.met[id] = false
	r.remember(topic, p, now)
	return true
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
