package pgproxy

import "sync"

// gate is what each byte of a stream has to pass last: a frozen stream waits here, a muted one ends here.
type gate struct {
	mu    sync.Mutex
	shut  chan struct{} // closed when the gate opens; nil: it is open
	muted bool
}

// pass waits while the gate is shut. It reports whether the stream goes on.
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

// mute is for good.
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
