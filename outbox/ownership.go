package outbox

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/roundtrip"
	"github.com/idem-go/idem/internal/session"
	"github.com/idem-go/idem/internal/txn"
)

// ownership is the right to relay some lanes, for as long as this process is seen to be there: by a session, or, for as long as none is
// to be had, by a lease.
type ownership struct {
	engine   *txn.Engine
	instance int
	lanes    []int
	session  atomic.Pointer[session.Session] // nil with a lease
	denied   bool                            // there will be no session, because a pooler is in front of the server
	seen     atomic.Int64                    // when, in nanoseconds
}

const (
	leaseTTL   = 30 * time.Second
	leaseTrust = 20 * time.Second // how long after a sign this process still believes in its lease
	signPause  = 8 * time.Second
	signLimit  = 5 * time.Second
	lookLimit  = 2 * time.Second
)

var errLost = errors.New("this process has not been seen for too long, and others may relay")

// takeOwnership returns nil if another process has a lane.
func takeOwnership(ctx context.Context, pool *pgxpool.Pool, relay string, generation int64, lanes []int) (*ownership, error) {
	engine := &txn.Engine{Pool: pool, Limits: txn.DefaultLimits}
	see := db.SeeLanes{Relay: relay, Lanes: lanes}
	bounded, cancel := context.WithTimeout(ctx, lookLimit)
	err := engine.Query(bounded, &see) // if the pool is used up, the session that follows does without it
	cancel()
	if err == nil && !see.Free || ctx.Err() != nil {
		return nil, ctx.Err()
	}
	p := &ownership{engine: engine, lanes: lanes}
	if err := p.appear(ctx); err != nil {
		return nil, err
	}
	take := db.TakeLanes{Relay: relay, Instance: p.instance, Generation: generation, Lanes: lanes}
	if err := p.ask(ctx, &take); err != nil || len(take.Rows) < len(lanes) {
		p.leave()
		return nil, err
	}
	return p, nil
}

func appearance(instance int) session.Appearance { return &db.AppearAsRelay{Instance: instance} }

func (p *ownership) appear(ctx context.Context) error {
	p.seen.Store(time.Now().UnixNano())
	s, err := session.Open(ctx, p.engine.Pool, 0, appearance)
	if err == nil {
		p.instance = s.Instance
		p.session.Store(s)
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	p.denied = session.IsDenied(err)
	bounded, cancel := context.WithTimeout(ctx, signLimit)
	defer cancel()
	number := db.NewInstance{}
	if err := p.engine.Query(bounded, &number); err != nil {
		return err
	}
	p.instance = number.Instance
	return p.renew(ctx)
}

// ask makes a round trip on the session, or with a lease on a connection of the pool.
func (p *ownership) ask(ctx context.Context, requests ...txn.Request) error {
	if s := p.session.Load(); s != nil {
		return s.Query(ctx, requests...)
	}
	return p.engine.Query(ctx, requests...)
}

// sign shows that this process is there. A session that has been idle for a minute is ended by the server.
func (p *ownership) sign(ctx context.Context) error {
	if p.session.Load() != nil {
		return p.show(ctx, command("select 1"))
	}
	if err := p.renew(ctx); err != nil {
		return err
	}
	return p.handOver(ctx)
}

func (p *ownership) renew(ctx context.Context) error {
	return p.show(ctx, db.RenewLease{Instance: p.instance, TTL: leaseTTL})
}

// show makes a round trip after which this process is seen to have been there when it began.
func (p *ownership) show(ctx context.Context, r txn.Request) error {
	bounded, cancel := context.WithTimeout(ctx, signLimit)
	defer cancel()
	sent := time.Now()
	err := p.ask(bounded, r)
	if err == nil {
		p.seen.Store(sent.UnixNano())
	}
	return err
}

// handOver asks for a session in place of the lease. The session shows the same instance, and takes over if all lanes are still this
// instance's: from then on no other can take them. An error says that the ownership is lost, or that the lease may have ended.
func (p *ownership) handOver(ctx context.Context) error {
	if p.denied {
		return nil
	}
	bounded, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	s, err := session.Open(bounded, p.engine.Pool, p.instance, appearance)
	if err != nil {
		p.denied = session.IsDenied(err)
		return nil
	}
	if err := s.Query(bounded, p.keepLanes(), db.EndLease{Instance: p.instance}); err != nil {
		return err
	}
	p.session.Store(s)
	return nil
}

func (p *ownership) unseen() time.Duration { return time.Since(time.Unix(0, p.seen.Load())) }

// trusted reports whether this process may still believe in its lease. A session is believed in until it is lost. It is safe for
// concurrent use.
func (p *ownership) trusted() bool { return p.session.Load() != nil || p.unseen() <= leaseTrust }

// signIfDue does so now and then. It is called often enough, and before messages are published.
func (p *ownership) signIfDue(ctx context.Context) error {
	if p.unseen() < signPause {
		return nil
	}
	if !p.trusted() { // this process has slept
		return errLost
	}
	return p.sign(ctx)
}

// fence is what a transaction begins with that changes something.
func (p *ownership) fence() []txn.Request {
	if p.session.Load() != nil { // no other can have the lanes while it answers
		return nil
	}
	return []txn.Request{p.keepLanes()}
}

func (p *ownership) keepLanes() txn.Request {
	return &db.KeepLanes{Instance: p.instance, Lanes: len(p.lanes)}
}

// leave lets another one have the lanes at once.
func (p *ownership) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), signLimit)
	defer cancel()
	s := p.session.Load()
	if s == nil {
		_ = p.engine.Query(ctx, db.LeaveLanes{Instance: p.instance}, db.EndLease{Instance: p.instance})
		return
	}
	if !s.Conn.IsClosed() {
		_ = s.Query(ctx, db.LeaveLanes{Instance: p.instance})
	}
	s.Close()
}

var errSlow = errors.New("the server has not answered in time")

// begin and commit are the ends of every transaction. Its level is fixed, because at a stricter one a database would make
// those fail who add messages.
const (
	begin  = command("begin isolation level read committed")
	commit = command("commit")
)

// command is a statement without parameters and results.
type command string

// Queue adds the statement.
func (c command) Queue(trip *roundtrip.Trip) { trip.Exec(string(c)) }

// Read reads the answer.
func (c command) Read(trip *roundtrip.Trip) { trip.Skip() }
