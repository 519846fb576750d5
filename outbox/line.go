package outbox

import "math/rand/v2"

// line are messages by their index, in the order in which they are tried.
type line struct {
	of   []int
	most int // how many are tried at a time
}

func (l *line) add(i int, isThere bool) {
	if !isThere {
		l.of = append(l.of, i)
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
	for n := range max(len(a), len(b)) {
		both = append(append(both, a[min(n, len(a)):min(n+1, len(a))]...), b[min(n, len(b)):min(n+1, len(b))]...)
	}
	return both
}
