package inbox

import "time"

// state is how far a delivery is on its way to its outcome.
type state int

const (
	untried state = iota // no transaction has claimed it
	claimed              // by the attempt under way, or by the last one, which has failed
	unclear              // the outcome of the COMMIT of the last attempt is not known
	settled              // it has its outcome
	putOff               // that is to come again, through no fault of its own
)

func (d *delivery) isSettled() bool { return d.state >= settled }

// reopen begins another attempt.
func (d *delivery) reopen() {
	if d.state == claimed {
		d.state = untried
	}
}

func (d *delivery) claim(at time.Time) { d.state, d.since = claimed, at }

func (d *delivery) settle(o Outcome) { d.outcome, d.state = o, settled }

// postpone settles a delivery that is to come again, after a pause.
func (d *delivery) postpone(pause time.Duration, err error) {
	d.settle(Outcome{State: Retry, RetryAt: time.Now().Add(pause), Err: err})
}

// putOff postpones a delivery through no fault of its own.
func (d *delivery) putOff(pause time.Duration, err error) { d.putOffUntil(time.Now().Add(pause), err) }

func (d *delivery) putOffUntil(at time.Time, err error) {
	d.outcome, d.state = Outcome{State: Retry, RetryAt: at, Err: err}, putOff
}

// notice is what the record is told of an attempt before it begins, because a message that kills its process leaves nothing else behind.
type notice int

const (
	needless notice = iota // it is not known to have been delivered before, or is not to be tried
	due                    // it is, and the attempt is to be announced
	together               // the attempt is announced, as one with others
	byItself               // and as one that it makes alone
)

// unfinished returns how many earlier attempts, that it made alone, have not told how they ended.
func (d *delivery) unfinished() int {
	if d.notice == byItself {
		return d.alone - 1
	}
	return d.alone
}
