package checkout

import (
	"math/rand/v2"
	"sync"
)

// recent has the ids of the last operations that this process ran.
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

// one returns a random id, or "" if there is none.
func (r *recent) one() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.ids) == 0 {
		return ""
	}
	return r.ids[rand.IntN(len(r.ids))]
}
