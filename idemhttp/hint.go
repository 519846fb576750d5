package idemhttp

import (
	"hash/maphash"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/idem-go/idem/internal/keyheader"
)

// likelyReplay reports whether the header Idempotency-Attempt says that the request is a second or
// later attempt. The header must have one value, a decimal integer of at least 2 and at most 15
// digits. The header is only a hint: the answer does not depend on it.
func likelyReplay(r *http.Request) bool {
	values := r.Header[keyheader.Attempt]
	if len(values) != 1 || len(values[0]) > 15 || strings.HasPrefix(values[0], "0") {
		return false
	}
	attempt, err := strconv.ParseUint(values[0], 10, 64)
	return err == nil && attempt >= 2
}

// answeredSlots is the number of slots of the table answered. The table takes 128 KiB.
const answeredSlots = 1 << 14

// answered is a table of hashes of recently answered keys. For a key in the table, the middleware
// looks for the record before it claims the key. The table is only a hint: a key replaces an
// earlier key in the same slot. The hash has a random seed, so that a client cannot make keys
// collide on purpose.
type answered struct {
	seed  maphash.Seed
	slots [answeredSlots]atomic.Uint64
}

func newAnswered() *answered { return &answered{seed: maphash.MakeSeed()} }

// idOf returns the hash of a key. The hash is never 0, because 0 marks an empty slot.
func (a *answered) idOf(scope, key string) uint64 {
	return maphash.Comparable(a.seed, [2]string{scope, key}) | 1
}

func (a *answered) has(id uint64) bool { return a.slot(id).Load() == id }

func (a *answered) add(id uint64) { a.slot(id).Store(id) }

func (a *answered) slot(id uint64) *atomic.Uint64 { return &a.slots[(id>>1)%answeredSlots] }
