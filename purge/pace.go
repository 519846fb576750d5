package purge

import "time"

// portionTime is the target duration of a portion. It is short for two reasons: a call may have to
// wait for a row until the portion ends, and a COMMIT of another session may have to flush the WAL
// of the portion.
const portionTime = 400 * time.Microsecond

// maxPause limits a pause. A run sends no heartbeat while it pauses, and another run takes over the
// sweep if the last heartbeat is too old.
const maxPause = 2 * time.Second

// pace decides how many pages a portion has, and how long the sweep pauses after it.
type pace struct {
	pages    int64 // in the next portion
	maxPages int64
	share    float64
}

func newPace(o *Options) pace {
	return pace{pages: min(int64(o.Pages), 32), maxPages: int64(o.Pages), share: o.Share}
}

// after returns the pause after a portion, and adjusts the size of the next portion. took is how
// long the server worked. other is the rest of the elapsed time, such as the time on the network,
// and counts as part of the pause.
func (p *pace) after(took, other time.Duration) time.Duration {
	switch {
	case took > 2*portionTime:
		p.halve()
	case took < portionTime/2:
		p.pages = min(2*p.pages, p.maxPages)
	}
	return max(p.pause(took)-max(other, 0), 0)
}

// pause returns the pause after work of the duration took, so that the work is the fraction Share
// of the time.
func (p *pace) pause(took time.Duration) time.Duration {
	pause := float64(took)/p.share - float64(took) // may exceed any Duration if the share is tiny
	return time.Duration(min(pause, float64(maxPause)))
}

// halve halves the size of portions. It returns false if a portion already has only one page.
func (p *pace) halve() bool {
	if p.pages == 1 {
		return false
	}
	p.pages /= 2
	return true
}
