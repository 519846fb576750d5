package pgproxy

import "sync"

// gate is the last check before a byte is written. A frozen stream waits at the gate, and a muted
// stream ends there.
type gate struct {
	mu    sync.Mutex
	shut  chan struct{} // closed when the gate opens; nil while it is open
	muted bool
}

// pass waits while the gate is shut. It reports false if the stream is muted.
func (g *gate) pass() bool {
	for {
		g.mu.Lock()
		shut, muted := g.shut, g.muted
		g.mu.Unlock()
		if muted || shut == nil {
			return !muted
		}
		<-shut
	}
}

func (g *gate) isMuted() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.muted
}

func (g *gate) freeze() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut == nil && !g.muted {
		g.shut = make(chan struct{})
	}
}

func (g *gate) resume() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open()
}

// mute ends the stream for good. A frozen stream is released, so that its writer can end.
func (g *gate) mute() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.muted = true
	g.open()
}

func (g *gate) open() {
	if g.shut != nil {
		close(g.shut)
		g.shut = nil
	}
}
