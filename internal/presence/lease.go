package presence

import (
	"context"
	"time"

	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/session"
	"github.com/idem-go/idem/internal/txn"
)

// lease makes a process visible until it expires, and is renewed: for a process behind a pooler, or one that was refused a session.
type lease struct {
	engine   *txn.Engine
	instance int
	renewed  time.Time                  // when the last renewal was sent
	denied   bool                       // there is a pooler, so there will be no session
	session  func() (visibility, error) // asks for one that shows the same instance
}

const (
	leaseTTL      = 30 * time.Second
	renewPause    = 10 * time.Second
	renewLimit    = 8 * time.Second
	leaseValidity = 20 * time.Second // how long after a renewal this process still believes in it
)

func openLease(ctx context.Context, engine *txn.Engine, denied bool) (*lease, error) {
	number := db.NewInstance{}
	if err := engine.Query(ctx, &number); err != nil {
		return nil, err
	}
	l := newLease(engine, number.Instance, denied)
	return l, engine.Query(ctx, l.renewal())
}

func newLease(engine *txn.Engine, instance int, denied bool) *lease {
	return &lease{engine: engine, instance: instance, renewed: time.Now(), denied: denied}
}

func (l *lease) renewal() txn.Request { return db.RenewLease{Instance: l.instance, TTL: leaseTTL} }

// keep renews the lease until that has failed for too long, a session takes its place, or done is closed. What counts is when a renewal
// was sent.
func (l *lease) keep(done <-chan struct{}) (next visibility) {
	for {
		timer := time.NewTimer(renewPause - time.Since(l.renewed))
		select {
		case <-done:
			timer.Stop()
			l.end()
			return nil
		case <-timer.C:
		}
		for sent := time.Now(); ; sent = time.Now() {
			if sent.Sub(l.renewed) > leaseValidity { // this process has slept: others may have what was its own
				return nil
			}
			if l.bounded(l.renewal()) == nil {
				l.renewed = sent
				break
			}
			time.Sleep(time.Second)
		}
		if next := l.handOver(); next != nil {
			return next
		}
	}
}

// handOver ends the lease if a session is available, which holds its lock before the lease ends. If ending the lease fails, it expires.
func (l *lease) handOver() visibility {
	if l.denied {
		return nil
	}
	s, err := l.session()
	l.denied = session.IsDenied(err)
	if s != nil {
		l.end()
	}
	return s
}

func (l *lease) end() { _ = l.bounded(db.EndLease{Instance: l.instance}) }

func (l *lease) bounded(r txn.Request) error {
	ctx, cancel := context.WithTimeout(context.Background(), renewLimit)
	defer cancel()
	return l.engine.Query(ctx, r)
}
