package pgproxy

import (
	"context"
	"sync"
)

// gate is what a byte must pass before it is written. A frozen stream waits at the gate, and a
// muted stream ends there.
type gate struct {
	muted context.Context // done when the connection forwards nothing more

	mu   sync.Mutex
	shut chan struct{} // closed when the gate opens again; nil if the gate is open
}

// pass waits while the gate is shut. It reports false if the stream is muted.
func (g *gate) pass() bool {
	for {
		g.mu.Lock()
		shut := g.shut
		g.mu.Unlock()
		if shut == nil || g.isMuted() {
			return !g.isMuted()
		}
		select {
		case <-shut:
		case <-g.muted.Done():
		}
	}
}

func (g *gate) isMuted() bool { return g.muted.Err() != nil }

func (g *gate) freeze() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut == nil {
		g.shut = make(chan struct{})
	}
}

func (g *gate) resume() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut != nil {
		close(g.shut)
		g.shut = nil
	}
}
