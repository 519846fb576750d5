package outbox

import (
	"time"

	"github.com/idem-go/idem/internal/db"
)

// delayed is what a relay knows of idem.delayed: when a message there is due. Then it inserts that in idem.outbox, of whatever topic and
// stream it is. Many relays may do so: one at a time, by a lock of the transaction.
type delayed struct {
	due   time.Time // when the first message is due, as far as is known; zero if it is not known
	ask   time.Time // not before this is it asked again
	from  time.Time // everything due before this was moved, but for what was committed late; zero at the beginning
	whole time.Time // then a move begins at the beginning
}

const (
	askPause  = 100 * time.Millisecond
	askShare  = 10                    // of the time, for asking and for moves from the beginning: beside an old snapshot, what was moved is in the way
	movePause = 50 * time.Millisecond // between two moves, unless more is due than one has moved
)

// asks returns what asks when the next one is due, if it is time to.
func (d *delayed) asks(now time.Time) *db.NextDelayed {
	if now.Before(d.ask) {
		return nil
	}
	return &db.NextDelayed{}
}

// told notes the answer. While a move goes on, it knows better.
func (d *delayed) told(next *db.NextDelayed, now time.Time) {
	d.ask = now.Add(max(askPause, askShare*next.Took))
	if due := now.Add(max(next.Due, movePause)); d.from.IsZero() {
		d.due = due
	}
}

// moves returns what moves messages that are due, if there may be some.
func (d *delayed) moves(now time.Time, room int) *db.MoveDelayed {
	if d.due.IsZero() || now.Before(d.due) {
		return nil
	}
	return &db.MoveDelayed{FromMoment: d.from, Room: room, Octets: octetsAtATime}
}

// moved notes what a move has done. The next one begins where it has ended, but for one now and then that finds what was committed late.
func (d *delayed) moved(m *db.MoveDelayed, took time.Duration, now time.Time) {
	if d.from.IsZero() {
		d.whole = now.Add(max(askPause, askShare*took))
	}
	d.due, d.ask, d.from = time.Time{}, time.Time{}, time.Time{}
	switch {
	case !m.Mine: // another relay moves them
		d.due = now.Add(movePause)
	case m.Moved > 0:
		if d.due = now; now.Before(d.whole) {
			d.from = m.Until
		}
	}
}

// until returns how long it is until one is due, at most limit.
func (d *delayed) until(now time.Time, limit time.Duration) time.Duration {
	if d.due.IsZero() {
		return limit
	}
	return min(max(d.due.Sub(now), 0), limit)
}
