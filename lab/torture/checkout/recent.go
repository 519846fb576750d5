package checkout

import (
	"math/rand/v2"
	"sync"
)

// recent are the ids of the latest operations that this process has run.
type recent struct {
	mu  sync.Mutex
	ids []string
}

func (r *recent) add(id string) {
	const most = 16
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ids = append(r.ids, id)
	r.ids = r.ids[max(len(r.ids)-most, 0):]
}

// one returns one of them, empty if there is none.
func (r *recent) one() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.ids) == 0 {
		return ""
	}
	return r.ids[rand.IntN(len(r.ids))]
}
