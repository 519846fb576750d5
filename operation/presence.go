package operation

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/internal/store"
	"github.com/idem-go/idem/internal/txn"
)

// Each process shows that it is there, so that what it works on is left to it: as an instance, a number that nobody else has.
// Nothing that is safe rests on it: every commit is fenced by its epoch. It only says who need not wait.

// instance is a process as others see it, until that is lost.
type instance struct {
	presence *presence
	number   int
	keeper   keeper
	gone     chan struct{} // closed when it is not seen any more
	taking   chan struct{} // holds a token unless somebody takes up what is not on the list yet

	mu      sync.Mutex
	lost    bool
	leaked  int // how often to look still whether the database takes what was let go of for this instance's
	running map[string]context.CancelCauseFunc
}

// keeper keeps an instance visible.
type keeper interface {
	// keep returns when that is over. done says that it may end.
	keep(done <-chan struct{})
}

// presence is what this process shows to one database.
type presence struct {
	engine *txn.Engine
	making chan struct{} // holds a token unless somebody makes an instance

	mu      sync.Mutex
	current *instance
	users   int
	idle    *time.Timer
	done    chan struct{} // closed when nobody has needed the current instance for a while
}

// lingering is for how long a presence is kept that nobody needs.
const lingering = 5 * time.Second

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

// adopt returns the instance that this process is, having made it one if it is none. release must follow.
func adopt(ctx context.Context, engine *txn.Engine) (*instance, error) {
	p := presenceOf(engine)
	p.use(1)
	i, err := p.get(ctx)
	if err != nil {
		p.use(-1)
		return nil, err
	}
	return i, nil
}

func (i *instance) release() { i.presence.use(-1) }

// use counts who needs the presence. It ends some time after nobody does.
func (p *presence) use(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.users += n
	if p.idle != nil {
		p.idle.Stop()
	}
	if p.users == 0 {
		p.idle = time.AfterFunc(lingering, p.end)
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
		close(p.done)
		p.current = nil
	}
	if presences[p.engine.Pool] == p {
		delete(presences, p.engine.Pool)
	}
}

// get returns the current instance, or makes one.
func (p *presence) get(ctx context.Context) (*instance, error) {
	if i := p.seen(); i != nil {
		return i, nil
	}
	select {
	case <-p.making:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { p.making <- struct{}{} }()
	if i := p.seen(); i != nil {
		return i, nil
	}
	i := &instance{presence: p, gone: make(chan struct{}), taking: make(chan struct{}, 1), running: map[string]context.CancelCauseFunc{}}
	i.taking <- struct{}{}
	if err := i.appear(ctx); err != nil {
		return nil, err
	}
	done := make(chan struct{})
	p.mu.Lock()
	p.current, p.done = i, done
	p.mu.Unlock()
	go i.tidy()
	go func() {
		i.keeper.keep(done)
		p.forget(i)
		i.lose()
	}()
	return i, nil
}

func (p *presence) seen() *instance {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.current
}

func (p *presence) forget(i *instance) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current == i {
		p.current = nil
	}
}

// appear makes the instance visible: by a lock on a session of its own, or, where there are no sessions to be had, by a lease.
func (i *instance) appear(ctx context.Context) error {
	s, err := openSession(ctx, i.presence.engine.Pool)
	if err == nil {
		i.number, i.keeper = s.Instance, s
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	l, err := openLease(ctx, i.presence.engine)
	if err != nil {
		return err
	}
	i.number, i.keeper = l.instance, l
	return nil
}

// lose takes everything from the instance: whoever works under its number has to stop.
func (i *instance) lose() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.lost = true
	close(i.gone)
	for _, cancel := range i.running {
		if cancel != nil {
			cancel(errPresenceLost)
		}
	}
}

// tidyPause is the pause between two looks for what was leaked, and looks how many there are: enough for what was young at
// the first.
const (
	tidyPause = 5 * time.Second
	looks     = 4
)

// tidy lets go of operations that have the number of this instance without its working on them: of those whose release was
// lost on the way.
func (i *instance) tidy() {
	for {
		select {
		case <-i.gone:
			return
		case <-time.After(tidyPause):
		}
		i.mu.Lock()
		leaked := i.leaked > 0
		i.leaked = max(i.leaked-1, 0)
		i.mu.Unlock()
		if !leaked {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), tidyPause)
		err := i.alone(ctx, func() error {
			return i.presence.engine.Query(ctx, store.Disown{Owner: i.number, Running: i.list()})
		})
		if err != nil {
			i.leak()
		}
		cancel()
	}
}

// enter puts an operation on the list of those that are worked on. It reports false if the instance is lost.
func (i *instance) enter(operation string, cancel context.CancelCauseFunc) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.lost {
		return false
	}
	i.running[operation] = cancel
	return true
}

// alone runs f while nobody else of this process takes anything up: what the database says of this instance and the list do
// not fit in between.
func (i *instance) alone(ctx context.Context, f func() error) error {
	select {
	case <-i.taking:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { i.taking <- struct{}{} }()
	return f()
}

// reserve puts an operation on the list that is about to be taken up. It reports false if it is worked on already.
func (i *instance) reserve(operation string) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if _, ok := i.running[operation]; ok {
		return false
	}
	i.running[operation] = nil
	return true
}

// leave takes it off. leaked says that the database may still take it for this instance's.
func (i *instance) leave(operation string, leaked bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.running, operation)
	if leaked {
		i.leaked = looks
	}
}

// leak says that the database may take operations for this instance's that are not on the list.
func (i *instance) leak() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.leaked = looks
}

// list returns the operations that are worked on.
func (i *instance) list() []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	ids := make([]string, 0, len(i.running))
	for id := range i.running {
		ids = append(ids, id)
	}
	return ids
}
