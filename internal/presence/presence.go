// Package presence makes a process visible to other processes, so that they do not take over its
// operations. It also detects that another process has died.
//
// A process is visible as an [Instance], which has a unique number. The process opens a connection
// outside the pool, and takes an advisory lock on the number there. This connection is a session.
// If the process is killed, the server releases the lock within milliseconds. Behind a pooler a
// process cannot have a session, and uses a lease instead: a row that expires after 30 seconds
// unless it is renewed. Correctness does not depend on presence, because a commit of an operation
// fails if another process has claimed the operation.
//
// Two of the processes that run a Worker are guards. They watch the locks of the processes that own
// operations, and look for due operations: see [Watcher].
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

// ErrLost is the cause with which contexts are canceled in a process that other processes no longer
// see.
var ErrLost = errors.New("operation: other processes no longer see this one")

// Instance is this process as other processes see it. It is lost when its session or lease has
// ended.
type Instance struct {
	presence  *presence
	Number    int
	done      chan struct{} // closed when the instance is no longer needed
	gone      chan struct{} // closed when other processes no longer see the instance
	claimLock chan struct{} // has a token unless WithClaimLock is running
	single    bool          // the instance belongs to one operation, and ends with it
	confirmed bool          // the lease of the instance is committed; used only if single

	mu        sync.Mutex
	keeper    visibility
	lost      bool
	looksLeft int       // how many more times releaseLeaked looks for operations soon
	lookedAt  time.Time // when releaseLeaked last looked for operations
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

// WakeWorkers makes the Workers of this process look for due operations. Without a session it does
// nothing.
func (i *Instance) WakeWorkers() {
	if g := i.guard(); g != nil {
		g.wakeWorkers()
	}
}

// presence manages the instance of this process in one database.
type presence struct {
	engine *txn.Engine
	making chan struct{} // has a token unless a session is being opened

	mu      sync.Mutex
	current *Instance
	users   int
	idle    *time.Timer
	refused time.Time // when a session was last refused
	denied  bool      // the refusal is permanent, as with a pooler in front of the server
}

// idleTime is how long a presence is kept after its last use.
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

// Adopt returns the instance of this process, and makes one if there is none. The caller must call
// Release.
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

// Retain counts one more user of the instance. The caller must call Release once more.
func (i *Instance) Retain() { i.presence.use(1) }

// IdlePause returns how long the Worker of this process waits between two looks for due operations.
// The Worker looks in case the guards fail. The pause grows with unit and with the number of
// processes. Without a session IdlePause reports false.
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

// use adds n to the number of users. If no user is left, the presence ends after idleTime.
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
// makes one with a lease. If the lease fails, too, the server is unavailable, and the next call
// tries to open a session again.
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

func (p *presence) leased(l *lease) *Instance {
	i := newInstance(p, l.instance, l)
	l.session = i.session
	return i
}

// session opens a session that replaces the lease of the instance. The instance keeps its number
// and its operations. If the instance belongs to a single operation, session returns nil.
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

// sessionRetryPause is how long a process waits after a refusal before it tries to open a session
// again.
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

// show makes i the current instance and returns nil. If there is a current instance already, show
// returns that one and does not use i.
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

// An operation is leaked if this instance owns it according to the database, but does not work on
// it. After a possible leak, releaseLeaked looks for such operations leakLooks times, leakLookPause
// apart. Otherwise it looks once every rareLookPause.
const (
	leakLookPause = time.Second
	leakLookLimit = 2 * time.Second
	leakLooks     = 10
	rareLookPause = 5 * time.Minute
)

// releaseLeaked releases operations that this instance owns according to the database, but that are
// not on its list. This happens if a release has failed, or if the acknowledgement of a claim was
// lost.
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

// Enter adds an operation to the list of operations in progress. The function cancel is called when
// the instance is lost. If the instance is lost already, Enter reports false.
func (i *Instance) Enter(operation string, cancel context.CancelCauseFunc) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.lost {
		return false
	}
	i.running[operation] = cancel
	return true
}

// WithClaimLock runs f while no other goroutine of this process claims operations. releaseLeaked
// also waits, because the list of operations in progress and the database differ during a claim.
func (i *Instance) WithClaimLock(ctx context.Context, f func() error) error {
	select {
	case <-i.claimLock:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { i.claimLock <- struct{}{} }()
	return f()
}

// Reserve adds an operation to the list of operations in progress before the claim. It reports
// false if the operation is on the list already.
func (i *Instance) Reserve(operation string) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if _, ok := i.running[operation]; ok {
		return false
	}
	i.running[operation] = nil
	return true
}

// Leave removes an operation from the list of operations in progress.
func (i *Instance) Leave(operation string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.running, operation)
}

// LeaveUnreleased removes an operation from the list of operations in progress, although this
// instance may still own it according to the database. releaseLeaked releases the operation later.
func (i *Instance) LeaveUnreleased(operation string) {
	i.Leave(operation)
	i.Leak()
}

// Leak makes releaseLeaked look for operations soon, because this instance may own operations that
// are not on its list of operations in progress.
func (i *Instance) Leak() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.looksLeft = leakLooks
}

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

// AdoptIn is Adopt for a caller that has an open transaction. If no session is available, AdoptIn
// returns an instance for one operation. The lease of that instance becomes visible with the COMMIT
// of the transaction, and the caller must then call Confirm.
//
// Before its first commit an operation has a connection of the pool. AdoptIn must not wait for
// another connection, because all others may be used by operations that wait, too. Behind a pooler
// it must not wait for a session of the server for the same reason.
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

// Confirm is called after the COMMIT that makes the lease of the instance visible. If the process
// has no other instance, this one becomes the instance of the process.
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
	// keep keeps the instance visible until done is closed, or the session or lease is lost. If
	// next is not nil, it takes the place of this visibility.
	keep(done <-chan struct{}) (next visibility)
}
