package outbox

import (
	"math/rand/v2"
	"time"
)

// line are messages by their index, in the order in which they are tried.
type line struct {
	of   []int
	most int // how many are tried at a time
	row  int // how many were published since a call has failed
}

// narrow is of how many calls one fails, at most, if one of the messages in a call that has failed is bad: a call that fails may take long, others do not.
const narrow = 16

// went lets more be tried at a time, once what was published would have been as many calls.
func (l *line) went(messages, most int) {
	if l.row += messages; l.row >= narrow*l.most {
		l.most = min(2*l.most, most)
	}
}

// failed lets fewer be tried at a time.
func (l *line) failed(messages int) {
	l.most, l.row = max(messages/narrow, 1), 0
}

// lines are those of a search. How many are tried at a time, and whose turn it is, outlive the round.
//
//   - known are keys of which a message was published in a trial, and none has failed since.
//   - fresh are those of which nothing is known. They are tried in the order of their newest message and of any one in turn, so that one of n tries is
//     about a good one if one of n messages that wait is good. Each is tried once, and is known, doubted or suspected then.
//   - doubted were in a call with others that has failed, and one of them is bad. No message of another line is tried together with them, so the others
//     wait for none of these calls but the one under way. It takes calls in proportion to log n to find that one.
//   - suspected have failed alone, and found are known to be bad. Both wait until a message was published.
type lines struct {
	known, fresh, doubted, suspected, found line

	turn, goodTurn int
	goodUntil      time.Time // only known and fresh ones have their turn before
}

// clear empties the lines.
func (l *lines) clear() {
	for _, line := range []*line{&l.known, &l.fresh, &l.doubted, &l.suspected, &l.found} {
		line.of, line.most = nil, max(line.most, 1)
	}
}

// mixed takes the last and any other in turn, each once.
func mixed(messages []int) []int {
	mixed, any := make([]int, 0, len(messages)), rand.Perm(len(messages))
	taken := make(map[int]bool, len(messages))
	take := func(i int) {
		if !taken[i] {
			taken[i], mixed = true, append(mixed, i)
		}
	}
	for n := range messages {
		take(messages[len(messages)-1-n])
		take(messages[any[n]])
	}
	return mixed
}

func inTurn(a, b []int) []int {
	both := make([]int, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		both = append(both, a[0], b[0])
		a, b = a[1:], b[1:]
	}
	return append(append(both, a...), b...)
}
