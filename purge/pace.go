package purge

import "time"

// aim is how long a portion should take. A call that waits for a row that it deletes waits for so long, and a COMMIT of another
// session in between has as much WAL to flush.
const aim = 400 * time.Microsecond

// maxPause is how long a pause is at most. A sweeper that pauses gives no sign of life.
const maxPause = 2 * time.Second

// pace is how much a sweep does at a time, and how long it pauses.
type pace struct {
	pages int64 // of the next portion
	most  int64
	share float64
}

func newPace(o *Options) pace {
	return pace{pages: min(int64(o.Pages), 32), most: int64(o.Pages), share: o.Share}
}

// after returns the pause after a portion for which the server has worked for a time, and fits the next one to that. What went
// by otherwise, on the way to the server and back, is part of the pause.
func (p *pace) after(took, otherwise time.Duration) time.Duration {
	switch {
	case took > 2*aim:
		p.halve()
	case took < aim/2:
		p.pages = min(2*p.pages, p.most)
	}
	return max(p.pause(took)-max(otherwise, 0), 0)
}

// pause is in proportion to the work.
func (p *pace) pause(took time.Duration) time.Duration {
	pause := float64(took)/p.share - float64(took) // beyond any Duration, if the share is next to nothing
	return time.Duration(min(pause, float64(maxPause)))
}

// halve makes portions smaller. It reports false if they cannot be.
func (p *pace) halve() bool {
	if p.pages == 1 {
		return false
	}
	p.pages /= 2
	return true
}
