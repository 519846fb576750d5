package idemhttp

import (
	"hash/maphash"
	"net/http"
	"sync/atomic"

	"github.com/idem-go/idem/internal/keyheader"
)

// likelyReplay reports whether the client says that this is its second attempt or a later one: the field has one value,
// which is a decimal integer of at most 15 digits, not below 2. It is a hint: whether it is true or not, the answer is the
// same.
func likelyReplay(r *http.Request) bool {
	values := r.Header[keyheader.Attempt]
	if len(values) != 1 {
		return false
	}
	attempt := values[0]
	if attempt == "" || len(attempt) > 15 || attempt[0] == '0' || attempt == "1" {
		return false
	}
	for i := range len(attempt) {
		if attempt[i] < '0' || attempt[i] > '9' {
			return false
		}
	}
	return true
}

// answeredSlots is how many keys answered can remember: 128 KiB of them.
const answeredSlots = 1 << 14

// answered remembers the keys that were answered lately, so that a repetition may ask for the record first. It is a hint as
// well: it forgets a key when another falls on the same slot, and it has no key itself, only hashes under a secret of its
// own, so that no client can make two collide.
type answered struct {
	seed  maphash.Seed
	slots [answeredSlots]atomic.Uint64
}

func newAnswered() *answered { return &answered{seed: maphash.MakeSeed()} }

// nameOf returns what stands for a key. It is never 0, which stands for an empty slot.
func (a *answered) nameOf(scope, key string) uint64 {
	return maphash.Comparable(a.seed, [2]string{scope, key}) | 1
}

func (a *answered) has(name uint64) bool { return a.slot(name).Load() == name }

func (a *answered) add(name uint64) { a.slot(name).Store(name) }

func (a *answered) slot(name uint64) *atomic.Uint64 { return &a.slots[(name>>1)%answeredSlots] }
