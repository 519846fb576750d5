package outbox

import "math/rand/v2"

// line are messages by their index, in the order in which they are tried.
type line struct {
	of   []int
	most int // how many are tried at a time
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
