package presence

import (
	"context"

	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/txn"
)

// An operation that has not been committed yet holds a connection of the pool when its process first has to show itself. It must
// not wait for another one, which may be held by an operation that waits for the same; nor may it, behind a pooler, wait for a
// session of the server.

// AdoptIn is Adopt for the holder of a transaction. If no session is available, the instance is that of one operation. Its lease
// becomes visible when the transaction is committed: Confirm must follow.
func AdoptIn(ctx context.Context, engine *txn.Engine, tx *txn.Tx) (*Instance, error) {
	p := presenceOf(engine)
	p.use(1)
	i, err := p.getIn(ctx, tx)
	if err != nil {
		p.use(-1)
		return nil, err
	}
	return i, nil
}

func (p *presence) getIn(ctx context.Context, tx *txn.Tx) (*Instance, error) {
	if i := p.seen(); i != nil {
		return i, nil
	}
	number := db.NewInstance{}
	if err := tx.Ask(ctx, &number); err != nil {
		return nil, err
	}
	pooled := uint32(number.Backend) != tx.PID()
	if !pooled {
		if i, err := p.inSession(ctx); i != nil || err != nil {
			return i, err
		}
	}
	l := newLease(p.engine, number.Instance, pooled)
	if err := tx.Ask(ctx, l.renewal()); err != nil {
		return nil, err
	}
	i := p.leased(l)
	i.single = true
	return i, nil
}

// Confirm notes that the lease of the instance is committed. The instance becomes that of the process if there is no other.
func (i *Instance) Confirm() {
	if !i.single || i.confirmed {
		return
	}
	i.confirmed = true
	i.presence.show(i)
	i.live()
}
