package inbox

import "time"

// pace is how many messages of a call are tried together, and whether any are. Each failure costs the rows of its group, which are
// rolled back. So groups shrink where messages fail, to what was handled before the failure, and grow again where none does: what a
// call writes is in proportion to its messages, however many of them fail.
type pace struct {
	settings *settings
	circuit  *circuit
	room     int  // of a group
	probing  bool // the call tries messages one by one, to see whether the others are worth it
}

// admit tells until when no message is to be tried: the zero time, if one may be.
func (p *pace) admit() time.Time {
	if p.settings.circuit == 0 || p.probing {
		return time.Time{}
	}
	a := p.circuit.admit(time.Now())
	if a.probe {
		p.probing, p.room = true, 1
	}
	return a.until
}

// failed is told of a message that was tried in vain, behind so many of its group that were handled.
func (p *pace) failed(handled int) {
	p.room = max(2*handled, p.room/8, 1)
	p.probing = p.circuit.failed(p.settings, handled > 0, p.probing, time.Now())
}

// counts reports whether a failure counts against its message: of a probe only the first one does.
func (p *pace) counts() bool { return !p.probing || p.circuit.counts() }

// passed is told of a group none of which has failed: that was committed, or in which there was nothing to handle. That leaves a probe
// to the next one.
func (p *pace) passed(handled bool) {
	if handled {
		p.circuit.succeeded()
		p.probing = false
	}
	if !p.probing {
		p.room = min(2*p.room, 1<<30)
	}
}

// leave ends the call.
func (p *pace) leave() {
	if p.probing {
		p.circuit.leave()
	}
}
