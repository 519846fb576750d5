package presence

import (
	"context"
	"time"

	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/session"
	"github.com/idem-go/idem/internal/txn"
)

// lease keeps a process visible without a session: behind a pooler, or after a session was refused.
// It expires unless it is renewed.
type lease struct {
	engine   *txn.Engine
	instance int
	renewed  time.Time                  // when the last successful renewal was sent
	denied   bool                       // no session will be available, as with a pooler
	session  func() (visibility, error) // opens a session for the same instance
}

const (
	leaseTTL      = 30 * time.Second
	renewPause    = 10 * time.Second
	sessionPause  = 2 * time.Second // between two attempts to open a session
	renewLimit    = 8 * time.Second
	leaseValidity = 20 * time.Second // how long after a renewal this process relies on it
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

// keep renews the lease until done is closed, a session takes over, or renewals have failed for
// leaseValidity. The validity counts from the time at which a renewal was sent. The database renews
// the lease after that time, so the process never relies on its lease for too long. Between two
// renewals keep tries to open a session, if one may become available: other processes notice the
// death of a process with a lease only when the lease expires.
func (l *lease) keep(done <-chan struct{}) (next visibility) {
	for {
		pause := renewPause - time.Since(l.renewed)
		if !l.denied {
			pause = min(pause, sessionPause)
		}
		timer := time.NewTimer(pause)
		select {
		case <-done:
			timer.Stop()
			l.end()
			return nil
		case <-timer.C:
		}
		// A renewal that is due soon comes before an attempt to open a session, which may take long.
		for sent := time.Now(); sent.Sub(l.renewed) >= renewPause-sessionPause; sent = time.Now() {
			if sent.Sub(l.renewed) > leaseValidity { // others may have taken over the operations
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

// handOver returns a session that takes over, if one is available. The session holds its lock
// before the lease ends. If ending the lease fails, the lease expires.
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
