package outbox

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/internal/roundtrip"
	"github.com/idem-go/idem/internal/session"
	"github.com/idem-go/idem/internal/store"
	"github.com/idem-go/idem/internal/txn"
)

// ownership is the right to relay some lanes, for as long as this process is seen to be there: by a session, or, where none is to be
// had, by a lease.
type ownership struct {
	db interface {
		Query(ctx context.Context, requests ...txn.Request) error
	}
	instance   int
	lanes      []int
	generation int64            // of the topics of all relays
	session    *session.Session // nil with a lease
	seen       atomic.Int64     // when, in nanoseconds
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
	see := store.SeeLanes{Relay: relay, Lanes: lanes}
	bounded, cancel := context.WithTimeout(ctx, lookLimit)
	err := engine.Query(bounded, &see) // if the pool is used up, the session that follows does without it
	cancel()
	if err == nil && !see.Free || ctx.Err() != nil {
		return nil, ctx.Err()
	}
	p := &ownership{lanes: lanes, generation: generation}
	if err := p.appear(ctx, engine); err != nil {
		return nil, err
	}
	take := store.TakeLanes{Relay: relay, Instance: p.instance, Generation: generation, Lanes: lanes}
	if err := p.db.Query(ctx, &take); err != nil || len(take.Taken) < len(lanes) {
		p.leave()
		return nil, err
	}
	return p, nil
}

func appearance(instance int) session.Appearance { return &store.AppearAsRelay{Instance: instance} }

func (p *ownership) appear(ctx context.Context, engine *txn.Engine) error {
	p.seen.Store(time.Now().UnixNano())
	s, err := session.Open(ctx, engine.Pool, 0, appearance)
	if err == nil {
		p.db, p.session, p.instance = s, s, s.Instance
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	bounded, cancel := context.WithTimeout(ctx, signLimit)
	defer cancel()
	number := store.NewInstance{}
	if err := engine.Query(bounded, &number); err != nil {
		return err
	}
	p.db, p.instance = engine, number.Instance
	return p.sign(ctx)
}

// sign shows that this process is there. A session that has been idle for a minute is ended by the server.
func (p *ownership) sign(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, signLimit)
	defer cancel()
	sent := time.Now()
	var err error
	if p.session != nil {
		err = p.db.Query(bounded, command("select 1"))
	} else {
		err = p.db.Query(bounded, store.RenewLease{Instance: p.instance, TTL: leaseTTL})
	}
	if err == nil {
		p.seen.Store(sent.UnixNano())
	}
	return err
}

func (p *ownership) unseen() time.Duration { return time.Since(time.Unix(0, p.seen.Load())) }

// trusted reports whether this process may still believe in its lease. A session is believed in until it is lost. It is safe for
// concurrent use.
func (p *ownership) trusted() bool { return p.session != nil || p.unseen() <= leaseTrust }

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
	if p.session != nil { // no other can have the lanes while it answers
		return nil
	}
	return []txn.Request{store.KeepLanes{Instance: p.instance, Lanes: len(p.lanes)}}
}

// leave lets another one have the lanes at once.
func (p *ownership) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), signLimit)
	defer cancel()
	if p.session == nil {
		_ = p.db.Query(ctx, store.LeaveLanes{Instance: p.instance}, store.EndLease{Instance: p.instance})
		return
	}
	if !p.session.Conn.IsClosed() {
		_ = p.db.Query(ctx, store.LeaveLanes{Instance: p.instance})
	}
	p.session.Close()
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
