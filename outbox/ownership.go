package outbox

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/session"
	"github.com/idem-go/idem/internal/txn"
)

// ownership is the right of a process to relay some lanes. The outbox is divided into a fixed
// number of lanes, and each key belongs to one lane. The ownership lasts as long as other processes
// can see that this process is alive: by its session, or by a lease if no session is possible.
type ownership struct {
	engine   *txn.Engine
	instance int
	lanes    []int
	session  atomic.Pointer[session.Session] // nil with a lease
	denied   bool                            // a session is impossible, because a pooler is in front of the server
	seen     atomic.Int64                    // the time of the last heartbeat, in nanoseconds
}

const (
	leaseTTL         = 30 * time.Second
	leaseTrust       = 20 * time.Second // how long after a heartbeat this process relies on its lease
	heartbeatPause   = 8 * time.Second
	heartbeatTimeout = 5 * time.Second
)

var errLost = errors.New("the ownership of the stream is lost; another process may relay the stream")

// takeOwnership acquires the lanes for this process. It returns nil if another process owns one of
// them.
func takeOwnership(ctx context.Context, pool *pgxpool.Pool, relay string, generation int64,
	lanes []int) (*ownership, error) {
	o := &ownership{engine: &txn.Engine{Pool: pool, Limits: txn.DefaultLimits}, lanes: lanes}
	see := db.SeeLanes{Relay: relay, Lanes: lanes}
	// Ignore an error: the pool may be exhausted, and a session needs no connection of the pool.
	if err := query(ctx, o.engine, &see); err == nil && !see.Free || ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err := o.register(ctx); err != nil {
		return nil, err
	}
	take := db.TakeLanes{Relay: relay, Instance: o.instance, Generation: generation, Lanes: lanes}
	if err := o.Query(ctx, &take); err != nil || len(take.Rows) < len(lanes) {
		o.release()
		return nil, err
	}
	return o, nil
}

func appearance(instance int) session.Appearance { return &db.AppearAsRelay{Instance: instance} }

// register makes this process visible to other processes: by a session, or by a lease if no session
// can be opened.
func (o *ownership) register(ctx context.Context) error {
	o.seen.Store(time.Now().UnixNano())
	s, err := session.Open(ctx, o.engine.Pool, 0, appearance)
	if err == nil {
		o.instance = s.Instance
		o.session.Store(s)
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	o.denied = session.IsDenied(err)
	bounded, cancel := context.WithTimeout(ctx, heartbeatTimeout)
	defer cancel()
	number := db.NewInstance{}
	if err := o.engine.Query(bounded, &number); err != nil {
		return err
	}
	o.instance = number.Instance
	return o.renewLease(ctx)
}

// Query implements querier. It uses the session, or a connection of the pool if there is no
// session.
func (o *ownership) Query(ctx context.Context, requests ...txn.Request) error {
	if s := o.session.Load(); s != nil {
		return s.Query(ctx, requests...)
	}
	return o.engine.Query(ctx, requests...)
}

// heartbeat shows other processes that this process is alive. Its query also keeps the server from
// ending an idle session, which happens after a minute. Without a session, heartbeat renews the
// lease and tries to replace it by a session.
func (o *ownership) heartbeat(ctx context.Context) error {
	if o.session.Load() != nil {
		return o.beat(ctx, command("select 1"))
	}
	if err := o.renewLease(ctx); err != nil {
		return err
	}
	return o.replaceLease(ctx)
}

func (o *ownership) renewLease(ctx context.Context) error {
	return o.beat(ctx, db.RenewLease{Instance: o.instance, TTL: leaseTTL})
}

// beat makes a round trip. If the trip succeeds, its start is the time of the last heartbeat.
func (o *ownership) beat(ctx context.Context, r txn.Request) error {
	bounded, cancel := context.WithTimeout(ctx, heartbeatTimeout)
	defer cancel()
	sent := time.Now()
	err := o.Query(bounded, r)
	if err == nil {
		o.seen.Store(sent.UnixNano())
	}
	return err
}

// replaceLease opens a session for the same instance, and ends the lease if this instance still
// owns the lanes. From then on no other process can take the lanes while the session is open. If
// replaceLease returns an error, the ownership is lost or the lease may have ended.
func (o *ownership) replaceLease(ctx context.Context) error {
	if o.denied {
		return nil
	}
	bounded, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	s, err := session.Open(bounded, o.engine.Pool, o.instance, appearance)
	if err != nil {
		o.denied = session.IsDenied(err)
		return nil
	}
	if err := s.Query(bounded, o.keepLanes(), db.EndLease{Instance: o.instance}); err != nil {
		return err
	}
	o.session.Store(s)
	return nil
}

func (o *ownership) sinceSeen() time.Duration { return time.Since(time.Unix(0, o.seen.Load())) }

// isTrusted reports whether this process may rely on the ownership. With a session it always may.
// With a lease it may until leaseTrust after the last heartbeat.
func (o *ownership) isTrusted() bool { return o.session.Load() != nil || o.sinceSeen() <= leaseTrust }

// heartbeatIfDue makes a heartbeat if the last one is at least heartbeatPause ago. The worker calls
// it before each round trip and while it waits.
func (o *ownership) heartbeatIfDue(ctx context.Context) error {
	if o.sinceSeen() < heartbeatPause {
		return nil
	}
	if !o.isTrusted() {
		return errLost
	}
	return o.heartbeat(ctx)
}

// fence returns the statements with which a writing transaction begins. With a lease, they check
// that this instance still owns the lanes. With a session there are none: no other process can take
// the lanes while the session is open.
func (o *ownership) fence() []txn.Request {
	if o.session.Load() != nil {
		return nil
	}
	return []txn.Request{o.keepLanes()}
}

func (o *ownership) keepLanes() txn.Request {
	return &db.KeepLanes{Instance: o.instance, Lanes: len(o.lanes)}
}

// release releases the lanes, so that another process can take them at once.
func (o *ownership) release() {
	ctx, cancel := context.WithTimeout(context.Background(), heartbeatTimeout)
	defer cancel()
	s := o.session.Load()
	if s == nil {
		_ = o.engine.Query(ctx, db.LeaveLanes{Instance: o.instance}, db.EndLease{Instance: o.instance})
		return
	}
	if !s.Conn.IsClosed() {
		_ = s.Query(ctx, db.LeaveLanes{Instance: o.instance})
	}
	s.Close()
}
