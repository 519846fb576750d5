package idemclient

import (
	"math"
	"sync"
)

// budget is a bucket of tokens. Each retry takes one token. At first the bucket is full: budget
// counts the missing tokens, so its zero value is a full bucket.
type budget struct {
	mu      sync.Mutex
	missing int64 // in millionths of a token
}

const token = 1_000_000

// deposit adds the share of a token that a request earns.
func (b *budget) deposit(ratio float64) {
	share := int64(math.Round(min(max(ratio, 0), 1e6) * token))
	b.mu.Lock()
	defer b.mu.Unlock()
	b.missing = max(0, b.missing-share)
}

// withdraw takes a token. It returns false if no whole token is left.
func (b *budget) withdraw(burst int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.missing+token > int64(burst)*token {
		return false
	}
	b.missing += token
	return true
}

// owe takes tokens for repetitions that net/http has already sent, even if no tokens are left. The
// debt is limited, so that later deposits can repay it.
func (b *budget) owe(requests, burst int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.missing = min(b.missing+int64(requests)*token, max(b.missing, 2*int64(burst)*token))
}
