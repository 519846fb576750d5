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

// ErrLost is the cause of the end of the contexts of a process that others no longer see.
var ErrLost = errors.New("operation: other processes no longer see this one")

// Instance is a process as others see it, until that is lost.
type Instance struct {
	presence  *presence
	Number    int
	done      chan struct{} // closed when it is needed no more
	gone      chan struct{} // closed when it is not seen any more
	taking    chan struct{} // holds a token unless something is taken up that is not on the list yet
	single    bool          // it is that of one operation, which ends it
	confirmed bool          // what has shown it is committed; only asked of one that is single

	mu      sync.Mutex
	keeper  visibility
	lost    bool
	leaked  int       // how many more times to look for operations of this instance that are not on the list
	looked  time.Time // the last of these looks
	running map[string]context.CancelCauseFunc
}

func newInstance(p *presence, number int, k visibility) *Instance {
	i := &Instance{
		presence: p, Number: number, keeper: k, looked: time.Now(), running: map[string]context.CancelCauseFunc{},
		done: make(chan struct{}), gone: make(chan struct{}), taking: make(chan struct{}, 1),
	}
	i.taking <- struct{}{}
	return i
}

// live keeps the instance visible until it is needed no more, or is lost.
func (i *Instance) live() {
	go i.tidy()
	go func() {
		for k := i.keptBy(); k != nil; {
			k = k.keep(i.done)
			i.keep(k)
		}
		i.presence.forget(i)
		i.lose()
	}()
}

func (i *Instance) keptBy() visibility {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.keeper
}

func (i *Instance) keep(k visibility) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.keeper = k
}

// guard returns the guard of the session; nil if there is no session.
func (i *Instance) guard() *guard {
	if s, ok := i.keptBy().(*watched); ok {
		return s.guard
	}
	return nil
}

// WakeWorkers has the Workers of this process look for due operations, if the instance has a session.
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
	refused time.Time // when no session was to be had
	denied  bool      // because a pooler is in front of the server
}

// lingering is for how long a presence is kept that no operation needs.
const lingerTime = 5 * time.Second

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

// Adopt returns the instance of this process, and makes it if there is none. Release must follow.
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

// Retain counts one more that uses the instance. Release must follow.
func (i *Instance) Retain() { i.presence.use(1) }

// IdlePause returns the pause between two looks that this process makes in case no guard does. It reports false without a session.
func (i *Instance) IdlePause(unit time.Duration) (time.Duration, bool) {
	g := i.guard()
	if g == nil {
		return 0, false
	}
	return g.idlePause(unit), true
}

// Release gives the instance back.
func (i *Instance) Release() {
	if i.single {
		close(i.done)
	}
	i.presence.use(-1)
}

// use counts who needs the presence. It ends some time after the last has left.
func (p *presence) use(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.users += n
	if p.idle != nil {
		p.idle.Stop()
	}
	if p.users == 0 {
		p.idle = time.AfterFunc(lingerTime, p.end)
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

// get returns the current instance, or makes one: with a session, or with a lease if no session is available. If neither is, the server
// is unavailable, and the next call tries a session again.
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
	if other := p.show(i); other != nil { // which was made meanwhile
		l.end()
		return other, nil
	}
	i.live()
	return i, nil
}

// leased returns the instance that a lease shows.
func (p *presence) leased(l *lease) *Instance {
	i := newInstance(p, l.instance, l)
	l.session = i.session
	return i
}

// session opens a session with the number of the instance, which replaces its lease. The instance keeps its operations. session returns
// nil for the lease of a single operation.
func (i *Instance) session() (visibility, error) {
	if i.presence.seen() != i {
		return nil, nil
	}
	s, err := openSession(context.Background(), i.presence.engine.Pool, i.Number)
	if err != nil {
		return nil, err
	}
	s.busy = i.works
	return s, nil
}

// refusal is the pause before a process tries to open a session again.
const refusal = 10 * time.Second

// inSession returns the current instance, or makes one with a session. It returns nil if no session is available.
func (p *presence) inSession(ctx context.Context) (*Instance, error) {
	if i := p.seen(); i != nil {
		return i, nil
	}
	select {
	case <-p.making:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { p.making <- struct{}{} }()
	if i := p.seen(); i != nil || p.isRefused() {
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
	s.busy = i.works
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
	return time.Since(p.refused) < refusal
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

// show makes an instance the current one, unless there is one already, which is returned.
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

func (p *presence) seen() *Instance {
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

// After a leak there are so many looks for leaked operations, tidyPause apart, and otherwise one every rareLooks.
const (
	tidyPause = time.Second
	tidyLimit = 2 * time.Second
	looks     = 10
	rareLooks = 5 * time.Minute
)

// tidy releases operations that the database records as owned by this instance and that are not on its list: a release has failed, or
// the acknowledgement of a claim was lost.
func (i *Instance) tidy() {
	ticker := time.NewTicker(tidyPause)
	defer ticker.Stop()
	for {
		select {
		case <-i.gone:
			return
		case <-ticker.C:
		}
		if !i.isToLook() {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), tidyLimit)
		err := i.Alone(ctx, func() error {
			return i.presence.engine.Query(ctx, db.Disown{Owner: i.Number, Running: i})
		})
		if err != nil {
			i.Leak()
		}
		cancel()
	}
}

func (i *Instance) isToLook() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.leaked == 0 && time.Since(i.looked) < rareLooks {
		return false
	}
	i.leaked, i.looked = max(i.leaked-1, 0), time.Now()
	return true
}

// Enter puts an operation on the list of those in progress. It reports false if the instance is lost.
func (i *Instance) Enter(operation string, cancel context.CancelCauseFunc) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.lost {
		return false
	}
	i.running[operation] = cancel
	return true
}

// Alone runs f while no other goroutine of this process claims an operation. In between, the list and the database differ.
func (i *Instance) Alone(ctx context.Context, f func() error) error {
	select {
	case <-i.taking:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { i.taking <- struct{}{} }()
	return f()
}

// Reserve puts an operation on the list before it is claimed. It reports false if the operation is in progress here.
func (i *Instance) Reserve(operation string) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if _, ok := i.running[operation]; ok {
		return false
	}
	i.running[operation] = nil
	return true
}

// Leave takes an operation off the list.
func (i *Instance) Leave(operation string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.running, operation)
}

// LeaveUnreleased is Leave for an operation that the database may still record as owned by this instance.
func (i *Instance) LeaveUnreleased(operation string) {
	i.Leave(operation)
	i.Leak()
}

// Leak notes that the database may record operations as owned by this instance that are not on its list.
func (i *Instance) Leak() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.leaked = looks
}

// works reports whether operations are in progress.
func (i *Instance) works() bool {
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
