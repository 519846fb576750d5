package measure

import (
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/idem-go/idem/lab/bench/contestant"
)

// Source makes the calls of one contestant in one cell.
type Source struct {
	Template contestant.Call // all but the key
	Share    float64         // of calls that repeat a recent key
	Keys     []string        // only these are called, in turn; nil: new ones are made

	seed    uint64
	clients atomic.Uint64
	fresh   atomic.Int64
	mu      sync.Mutex
	recent  [recent]string
	used    int
}

// recent is how many of the last keys are repeated. Some of them are in flight.
const recent = 64

// NewSource returns a source of calls with new keys.
func NewSource(seed uint64, business contestant.Business, response int) *Source {
	return &Source{Template: contestant.Call{Business: business, Body: Body(seed, response)}, seed: seed}
}

// Fresh is how many different keys have been called.
func (s *Source) Fresh() int { return int(s.fresh.Load()) }

// client returns a client's own stream of calls.
func (s *Source) client() func() contestant.Call {
	random := rand.New(rand.NewPCG(s.seed, s.clients.Add(1)))
	at := random.IntN(1 << 20)
	return func() contestant.Call {
		call := s.Template
		switch {
		case len(s.Keys) > 0:
			at++
			call.Key = s.Keys[at%len(s.Keys)]
		case s.Share > 0:
			call.Key = s.sometimesOld(random)
		default:
			s.fresh.Add(1)
			call.Key = Key(random)
		}
		return call
	}
}

func (s *Source) sometimesOld(random *rand.Rand) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used > 0 && random.Float64() < s.Share {
		return s.recent[random.IntN(min(s.used, recent))]
	}
	key := Key(random)
	s.recent[s.used%recent] = key
	s.used++
	s.fresh.Add(1)
	return key
}

// Fork returns a source of the same calls with keys of its own.
func (s *Source) Fork() *Source {
	return &Source{Template: s.Template, Share: s.Share, seed: s.seed + s.clients.Add(1)<<32}
}

// Take returns n new keys.
func (s *Source) Take(n int) []string {
	next := s.client()
	keys := make([]string, n)
	for i := range keys {
		keys[i] = next().Key
	}
	return keys
}

// Key makes a random UUID.
func Key(random *rand.Rand) string {
	high, low := random.Uint64(), random.Uint64()
	return fmt.Sprintf("%08x-%04x-4%03x-a%03x-%012x", high>>32, high>>16&0xffff, high&0xfff, low>>48&0xfff, low&0xffffffffffff)
}

// Body makes a JSON document of n bytes that does not compress, because Postgres would.
func Body(seed uint64, n int) []byte {
	const frame = `{"status":"created","receipt":""}`
	if n <= len(frame) {
		return []byte(frame)
	}
	random, noise := rand.New(rand.NewPCG(seed, 1)), make([]byte, n)
	for i := range noise {
		noise[i] = byte(random.Uint32())
	}
	receipt := base64.RawURLEncoding.EncodeToString(noise)[:n-len(frame)]
	return []byte(frame[:len(frame)-2] + receipt + frame[len(frame)-2:])
}
