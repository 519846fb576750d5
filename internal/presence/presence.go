// Package presence makes a process visible to other processes, so that they do not take over its
// operations. It also detects that another process is gone.
//
// A process shows itself as an [Instance], which has a unique number. It holds one connection
// beside the pool, and on that connection an advisory lock on its number: a session. If the process
// is killed, the server releases the lock within milliseconds. Behind a pooler there are no
// sessions, and a lease of 30 seconds takes their place. Correctness does not rest on this: every
// commit of an operation is fenced by its epoch.
//
// Two of the processes that run a Worker are guards. They watch the locks of the processes that own
// operations, and find what is due: see [Watcher].
package presence

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/session"
	"github.com/idem-go/idem/internal/txn"
)

// ErrLost is the cause of canceled contexts in a process that other processes no longer see.
var ErrLost = errors.New("operation: other processes no longer see this one")

// Instance is this process as other processes see it, until it is lost.
type Instance struct {
	presence  *presence
	Number    int
	done      chan struct{} // closed when the instance is no longer needed
	gone      chan struct{} // closed when other processes no longer see the instance
	claimLock chan struct{} // holds a token unless WithClaimLock runs
	single    bool          // it belongs to one operation, which ends it
	confirmed bool          // its lease is committed; used only if single

	mu        sync.Mutex
	keeper    visibility
	lost      bool
	looksLeft int       // how many more looks for leaked operations follow soon
	lookedAt  time.Time // the last look for leaked operations
	running   map[string]context.CancelCauseFunc
}

func newInstance(p *presence, number int, k visibility) *Instance {
	i := &Instance{
		presence: p, Number: number, keeper: k, lookedAt: time.Now(), running: map[string]context.CancelCauseFunc{},
		done: make(chan struct{}), gone: make(chan struct{}), claimLock: make(chan struct{}, 1),
	}
	i.claimLock <- struct{}{}
	return i
}

// live keeps the instance visible until it is no longer needed, or lost.
func (i *Instance) live() {
	go i.releaseLeaked()
	go func() {
		for k := i.currentKeeper(); k != nil; {
			k = k.keep(i.done)
			i.setKeeper(k)
		}
		i.presence.forget(i)
		i.lose()
	}()
}

func (i *Instance) currentKeeper() visibility {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.keeper
}

func (i *Instance) setKeeper(k visibility) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.keeper = k
}

// guard returns the guard of the session, or nil without a session.
func (i *Instance) guard() *guard {
	if s, ok := i.currentKeeper().(*watched); ok {
		return s.guard
	}
	return nil
}

// WakeWorkers makes the Workers of this process look for due operations, if the instance has a
// session.
func (i *Instance) WakeWorkers() {
	if g := i.guard(); g != nil {
		g.wakeWorkers()
	}
}

// presence is what this process shows to one database.
type presence struct {
	engine *txn.Engine
	making chan struct{} // holds a token unless a session is being opened

	mu      sync.Mutex
	current *Instance
	users   int
	idle    *time.Timer
	refused time.Time // when a session was last refused
	denied  bool      // the refusal is permanent, as with a pooler in front of the server
}

// idleTime is how long a presence is kept that no operation uses.
const idleTime = 5 * time.Second

var (
	presencesMu sync.Mutex
	presences   = map[*pgxpool.Pool]*presence{}
)

func presenceOf(engine *txn.Engine) *presence {
	presencesMu.Lock()
	defer presencesMu.Unlock()
	p := presences[engine.Pool]
	if p == nil {
		p = &presence{engine: &txn.Engine{Pool: engine.Pool, Limits: engine.Limits}, making: make(chan struct{}, 1)}
		p.making <- struct{}{}
		presences[engine.Pool] = p
	}
	return p
}

// Adopt returns the instance of this process, and makes one if there is none. Release must follow.
func Adopt(ctx context.Context, engine *txn.Engine) (*Instance, error) {
	p := presenceOf(engine)
	p.use(1)
	i, err := p.get(ctx)
	if err != nil {
		p.use(-1)
		return nil, err
	}
	return i, nil
}

// Retain counts one more user of the instance. Release must follow.
func (i *Instance) Retain() { i.presence.use(1) }

// IdlePause returns the pause between two looks for due operations. This process makes them in case
// no guard does. It reports false without a session.
func (i *Instance) IdlePause(unit time.Duration) (time.Duration, bool) {
	g := i.guard()
	if g == nil {
		return 0, false
	}
	return g.idlePause(unit), true
}

// Release ends one use of the instance.
func (i *Instance) Release() {
	if i.single {
		close(i.done)
	}
	i.presence.use(-1)
}

// use adds n to the number of users. If there is none left, the presence ends after idleTime.
func (p *presence) use(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.users += n
	if p.idle != nil {
		p.idle.Stop()
	}
	if p.users == 0 {
		p.idle = time.AfterFunc(idleTime, p.end)
	}
}

func (p *presence) end() {
	presencesMu.Lock()
	defer presencesMu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.users > 0 {
		return
	}
	if p.current != nil {
		close(p.current.done)
		p.current = nil
	}
	if presences[p.engine.Pool] == p {
		delete(presences, p.engine.Pool)
	}
}

// get returns the current instance, or makes one with a session. If no session is available, it
// makes one with a lease. If that fails as well, the server is unavailable, and the next call tries
// a session again.
func (p *presence) get(ctx context.Context) (*Instance, error) {
	if i, err := p.inSession(ctx); i != nil || err != nil {
		return i, err
	}
	l, err := openLease(ctx, p.engine, p.isDenied())
	if err != nil {
		p.setRefused(time.Time{}, false)
		return nil, err
	}
	i := p.leased(l)
	if other := p.show(i); other != nil { // another call was faster
		l.end()
		return other, nil
	}
	i.live()
	return i, nil
}

// leased returns the instance of a lease.
func (p *presence) leased(l *lease) *Instance {
	i := newInstance(p, l.instance, l)
	l.session = i.session
	return i
}

// session opens a session with the number of the instance, which replaces its lease. The instance
// keeps its operations. session returns nil for the lease of a single operation.
func (i *Instance) session() (visibility, error) {
	if i.presence.currentInstance() != i {
		return nil, nil
	}
	s, err := openSession(context.Background(), i.presence.engine.Pool, i.Number)
	if err != nil {
		return nil, err
	}
	s.busy = i.isBusy
	return s, nil
}

// sessionRetryPause is the pause before a process tries to open a session again.
const sessionRetryPause = 10 * time.Second

// inSession returns the current instance, or makes one with a session. It returns nil if no session
// is available.
func (p *presence) inSession(ctx context.Context) (*Instance, error) {
	if i := p.currentInstance(); i != nil {
		return i, nil
	}
	select {
	case <-p.making:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { p.making <- struct{}{} }()
	if i := p.currentInstance(); i != nil || p.isRefused() {
		return i, nil
	}
	s, err := openSession(ctx, p.engine.Pool, 0)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		p.setRefused(time.Now(), session.IsDenied(err))
		return nil, nil
	}
	i := newInstance(p, s.Instance, s)
	s.busy = i.isBusy
	if other := p.show(i); other != nil {
		s.Close()
		return other, nil
	}
	i.live()
	return i, nil
}

func (p *presence) isRefused() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Since(p.refused) < sessionRetryPause
}

func (p *presence) setRefused(at time.Time, denied bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refused, p.denied = at, denied
}

func (p *presence) isDenied() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.denied
}

// show makes i the current instance. If there is one already, it returns that instead.
func (p *presence) show(i *Instance) (other *Instance) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current != nil {
		return p.current
	}
	i.single = false
	p.current = i
	return nil
}

func (p *presence) currentInstance() *Instance {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.current
}

func (p *presence) forget(i *Instance) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current == i {
		p.current = nil
	}
}

// lose cancels all operations of the instance, because other processes no longer see it.
func (i *Instance) lose() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.lost = true
	close(i.gone)
	for _, cancel := range i.running {
		if cancel != nil {
			cancel(ErrLost)
		}
	}
}

// A leak is followed by leakLooks looks for leaked operations, leakLookPause apart. Without a leak
// there is one look every rareLookPause.
const (
	leakLookPause = time.Second
	leakLookLimit = 2 * time.Second
	leakLooks     = 10
	rareLookPause = 5 * time.Minute
)

// releaseLeaked releases operations that the database records as owned by this instance but that
// are not on its list. A release has failed, or the acknowledgement of a claim was lost.
func (i *Instance) releaseLeaked() {
	ticker := time.NewTicker(leakLookPause)
	defer ticker.Stop()
	for {
		select {
		case <-i.gone:
			return
		case <-ticker.C:
		}
		if !i.lookIsDue() {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), leakLookLimit)
		err := i.WithClaimLock(ctx, func() error {
			return i.presence.engine.Query(ctx, db.Disown{Owner: i.Number, Running: i})
		})
		if err != nil {
			i.Leak()
		}
		cancel()
	}
}

func (i *Instance) lookIsDue() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.looksLeft == 0 && time.Since(i.lookedAt) < rareLookPause {
		return false
	}
	i.looksLeft, i.lookedAt = max(i.looksLeft-1, 0), time.Now()
	return true
}

// Enter adds an operation to the list of those in progress. It reports false if the instance is
// lost.
func (i *Instance) Enter(operation string, cancel context.CancelCauseFunc) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.lost {
		return false
	}
	i.running[operation] = cancel
	return true
}

// WithClaimLock runs f while no other goroutine of this process claims operations. During a claim
// the list and the database differ, so releaseLeaked must not run.
func (i *Instance) WithClaimLock(ctx context.Context, f func() error) error {
	select {
	case <-i.claimLock:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { i.claimLock <- struct{}{} }()
	return f()
}

// Reserve adds an operation to the list before it is claimed. It reports false if the operation is
// on the list already.
func (i *Instance) Reserve(operation string) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if _, ok := i.running[operation]; ok {
		return false
	}
	i.running[operation] = nil
	return true
}

// Leave removes an operation from the list.
func (i *Instance) Leave(operation string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.running, operation)
}

// LeaveUnreleased removes an operation that the database may still record as owned by this
// instance.
func (i *Instance) LeaveUnreleased(operation string) {
	i.Leave(operation)
	i.Leak()
}

// Leak notes that the database may record operations as owned by this instance that are not on the
// list.
func (i *Instance) Leak() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.looksLeft = leakLooks
}

// isBusy reports whether operations are in progress.
func (i *Instance) isBusy() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.running) > 0
}

// List returns the operations in progress.
func (i *Instance) List() []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	ids := make([]string, 0, len(i.running))
	for id := range i.running {
		ids = append(ids, id)
	}
	return ids
}

// AdoptIn is Adopt for the holder of a transaction. If no session is available, it returns an
// instance for one operation. The lease of that instance becomes visible when the transaction is
// committed, and Confirm must follow.
//
// An operation without a commit holds a connection of the pool when its process first has to show
// itself. AdoptIn must not wait for another connection, because the other connections may all be
// held by operations that wait, too. Behind a pooler it must not wait for a session of the server
// either.
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
	if i := p.currentInstance(); i != nil {
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

// Confirm notes that the lease of the instance is committed. The instance becomes that of the
// process if there is no other.
func (i *Instance) Confirm() {
	if !i.single || i.confirmed {
		return
	}
	i.confirmed = true
	i.presence.show(i)
	i.live()
}

// visibility keeps an instance visible: a session or a lease.
type visibility interface {
	// keep returns when the instance is no longer visible, or done is closed. next takes over, if
	// not nil.
	keep(done <-chan struct{}) (next visibility)
}
