package presence

import (
	"context"
	"time"

	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/session"
	"github.com/idem-go/idem/internal/txn"
)

// lease keeps a process visible without a session, either behind a pooler or after a session was
// refused. It expires unless it is renewed.
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
	sessionPause  = 2 * time.Second // the time between two attempts to open a session
	renewLimit    = 8 * time.Second
	leaseValidity = 20 * time.Second // how long after a renewal this process relies on the lease
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

// keep renews the lease until done is closed, a session replaces it, or renewals have failed for
// leaseValidity. leaseValidity counts from the time at which a renewal was sent. The database
// counts the lease from a later time, so the lease does not expire while the process relies on it.
// With a lease, other processes notice the death of this process only when the lease expires. keep
// therefore tries to open a session between two renewals, unless no session will be available.
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
		// An attempt to open a session may take long, so a renewal that is due soon comes first.
		for sent := time.Now(); sent.Sub(l.renewed) >= renewPause-sessionPause; sent = time.Now() {
			if sent.Sub(l.renewed) > leaseValidity { // other processes may have taken over the operations
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

// handOver returns a session that replaces the lease, if a session is available. The session takes
// its lock before the lease ends. If the statement that ends the lease fails, the lease expires
// later.
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
