package operation

import (
	"context"
	"time"

	"github.com/idem-go/idem/internal/store"
	"github.com/idem-go/idem/internal/txn"
)

// lease shows that a process is there by a moment that it puts off: for processes behind a pooler, which gives no session to
// any process.
type lease struct {
	engine   *txn.Engine
	instance int
	renewed  time.Time // when it was last sent that it goes on
}

const (
	leaseTTL   = 30 * time.Second
	renewPause = 10 * time.Second
	renewLimit = 8 * time.Second
	leaseTrust = 20 * time.Second // how long after a renewal this process still believes in it
)

func openLease(ctx context.Context, engine *txn.Engine) (*lease, error) {
	number := store.NewInstance{}
	if err := engine.Query(ctx, &number); err != nil {
		return nil, err
	}
	l := newLease(engine, number.Instance)
	return l, engine.Query(ctx, l.renewal())
}

func newLease(engine *txn.Engine, instance int) *lease {
	return &lease{engine: engine, instance: instance, renewed: time.Now()}
}

func (l *lease) renewal() txn.Request { return store.RenewLease{Instance: l.instance, TTL: leaseTTL} }

// keep renews the lease until that has failed for too long, or done is closed. What counts is when a renewal was sent.
func (l *lease) keep(done <-chan struct{}) {
	for {
		timer := time.NewTimer(renewPause)
		select {
		case <-done:
			timer.Stop()
			l.end()
			return
		case <-timer.C:
		}
		for sent := time.Now(); ; sent = time.Now() {
			if sent.Sub(l.renewed) > leaseTrust { // this process has slept: others may have what was its own
				return
			}
			if l.bounded(l.renewal()) == nil {
				l.renewed = sent
				break
			}
			time.Sleep(time.Second)
		}
	}
}

func (l *lease) end() { _ = l.bounded(store.EndLease{Instance: l.instance}) }

func (l *lease) bounded(r txn.Request) error {
	ctx, cancel := context.WithTimeout(context.Background(), renewLimit)
	defer cancel()
	return l.engine.Query(ctx, r)
}
