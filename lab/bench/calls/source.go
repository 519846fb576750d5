package calls

import (
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"sync/atomic"

	"github.com/idem-go/idem/lab/bench/calls/contestant"
)

// source generates the calls of one contestant in one scenario. Sources with the same seed generate
// the same keys.
type source struct {
	template contestant.Call // all fields of a call except the key
	keys     []string        // keys to use again and again; nil means a new key for each call

	seed    uint64
	clients atomic.Uint64
	fresh   atomic.Int64
}

// newSource returns a source of calls with new keys.
func newSource(seed uint64, business contestant.Business, response int) *source {
	return &source{template: contestant.Call{Business: business, Body: body(seed, response)}, seed: seed}
}

// made returns the number of new keys that the source has generated.
func (s *source) made() int { return int(s.fresh.Load()) }

// client returns a function for one client. The function returns the next call that the client is
// to make.
func (s *source) client() func() contestant.Call {
	random := rand.New(rand.NewPCG(s.seed, s.clients.Add(1)))
	at := random.IntN(1 << 20)
	return func() contestant.Call {
		if len(s.keys) > 0 {
			at++
			return s.call(s.keys[at%len(s.keys)])
		}
		s.fresh.Add(1)
		return s.call(uuid(random))
	}
}

// call returns a call with the given key.
func (s *source) call(key string) contestant.Call {
	call := s.template
	call.Key = key
	return call
}

// fork returns a source that generates the same calls with different keys.
func (s *source) fork() *source {
	return &source{template: s.template, seed: s.seed + s.clients.Add(1)<<32}
}

// take returns n new keys.
func (s *source) take(n int) []string {
	next := s.client()
	keys := make([]string, n)
	for i := range keys {
		keys[i] = next().Key
	}
	return keys
}

func uuid(random *rand.Rand) string {
	high, low := random.Uint64(), random.Uint64()
	return fmt.Sprintf("%08x-%04x-4%03x-a%03x-%012x", high>>32, high>>16&0xffff, high&0xfff, low>>48&0xfff, low&0xffffffffffff)
}

// body returns a JSON document of n bytes. It is random, so that Postgres cannot compress it.
func body(seed uint64, n int) []byte {
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
