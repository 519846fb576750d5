package workload

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/torture/config"
	"github.com/idem-go/idem/lab/torture/history"
	"github.com/idem-go/idem/lab/torture/ledger"
	"github.com/idem-go/idem/seal"
)

// plan is everything that is decided about a call before it begins.
type plan struct {
	verb, scope, key, payload, fn string

	pool      *pgxpool.Pool
	txOptions pgx.TxOptions
	ttl       time.Duration
	wait      time.Duration
	timeout   time.Duration // timeout of the context of the call
	retries   int           // maximum number of retries; negative for the default
	transfer  ledger.Transfer
	slow      time.Duration // the duration of a slow fn
	padding   int           // extra bytes in the response
	cancel    time.Duration // delay between fnCancel and the end of the context
	early     bool          // fn writes the transfer before the effect
	keepOn    bool          // the caller of DoTx commits after a failure and rolls back after a success
	likely    bool          // use WithReplayLikely
	sealer    *seal.Sealer
	batch     []*plan // calls of DoTx to make before this one, in the same transaction
}

var fns = []weighted{
	{50, fnOK}, {8, fnSlow}, {6, fnSavepoint}, {9, fnFail}, {3, fnFailLate}, {9, fnReject}, {3, fnPanic}, {2, fnGoexit},
	{4, fnSwallow}, {2, fnTooLarge}, {4, fnCancel}, {1, fnCommit}, {1, fnRollback}, {1, fnRollbackSQL}, {1, fnRestartSQL},
	{1, fnCommitSQL},
}

var verbs = []weighted{{70, history.Do}, {18, history.DoTx}, {12, history.DoJSON}}

type weighted struct {
	weight int
	value  string
}

func pick(r *rand.Rand, from []weighted) string {
	total := 0
	for _, w := range from {
		total += w.weight
	}
	n := r.IntN(total)
	for _, w := range from {
		if n -= w.weight; n < 0 {
			return w.value
		}
	}
	panic("unreachable")
}

// newPlan decides the next call. The set of keys in use changes with time: each key is in use for
// config.KeyLife. One call in twenty uses a key of an earlier period.
func newPlan(r *rand.Rand, c *config.Config, pools []*pgxpool.Pool, now time.Duration) *plan {
	life := int((now - c.Start) / config.KeyLife)
	if life > 0 && r.IntN(20) == 0 {
		life -= 1 + r.IntN(min(life, 3))
	}
	hot := r.Float64() // squared below, which favors low numbers
	number := int(hot * hot * float64(c.Keys))
	p := &plan{
		verb: pick(r, verbs), fn: pick(r, fns),
		scope: idem.Scope("tenant-1", "POST /orders"), key: fmt.Sprintf("%d-%d", life, number), payload: "A",
		pool: pools[r.IntN(len(pools))], ttl: time.Hour, retries: -1,
		transfer: ledger.Transfer{From: r.IntN(ledger.Accounts), To: r.IntN(ledger.Accounts), Amount: r.Int64N(1000)},
		slow:     time.Duration(2+r.IntN(40)) * time.Millisecond, padding: r.IntN(300),
		cancel: time.Duration(r.IntN(1500)) * time.Microsecond,
		early:  r.IntN(4) == 0, keepOn: r.IntN(5) == 0, likely: r.IntN(4) == 0,
		sealer: ledger.Sealers[r.IntN(len(ledger.Sealers))],
	}
	if r.IntN(3) == 0 {
		p.scope = idem.Scope("tenant-2", "POST /orders")
	}
	if r.IntN(7) == 0 {
		p.payload = "B"
	}
	if number%2 == 0 {
		p.ttl = 30*time.Millisecond + time.Duration(r.Int64N(int64(300*time.Millisecond)))
	}
	if r.IntN(50) == 0 {
		p.padding = 64 << 10
	}
	p.chooseLimits(r)
	switch {
	case p.fn == fnCommitSQL:
		p.verb, p.scope, p.key = history.Do, history.CommitScope, fmt.Sprintf("%016x", r.Uint64())
	case p.verb == history.DoTx && r.IntN(40) == 0:
		p.makeBatch(r, life)
	}
	return p
}

// batchSize is the number of calls of a batch. The library takes a savepoint and a lock for each of
// the first calls only, and this number is large enough for calls beyond them.
const batchSize = 40

// makeBatch plans batchSize-1 other calls, which are made before the call p in its transaction.
//
// Most keys of a batch are used by batches only, so that most calls of the batch execute. The
// ranges of keys of different batches overlap, so that some calls are replays. All calls of a batch
// use one account that only batches use: the long transaction of the batch would otherwise block
// all other calls.
func (p *plan) makeBatch(r *rand.Rand, life int) {
	p.txOptions, p.timeout, p.keepOn = pgx.TxOptions{}, 4*time.Second, r.IntN(4) > 0
	p.fn = choose(r, fnOK, fnFail, fnReject, fnSwallow, fnTooLarge)
	p.transfer.From = ledger.Accounts + r.IntN(ledger.BatchAccounts)
	p.transfer.To = p.transfer.From
	first := 16 * r.IntN(40)
	for n := range batchSize - 1 {
		one := *p
		one.batch, one.key, one.fn = nil, fmt.Sprintf("batch-%d-%d", life, first+n), fnOK
		one.ttl = time.Hour
		if r.IntN(50) == 0 {
			one.fn = choose(r, fnFail, fnReject, fnSavepoint)
		}
		p.batch = append(p.batch, &one)
	}
}

func choose(r *rand.Rand, from ...string) string { return from[r.IntN(len(from))] }

func (p *plan) chooseLimits(r *rand.Rand) {
	p.wait = []time.Duration{0, 20 * time.Millisecond, time.Second, 3 * time.Second}[r.IntN(4)]
	p.timeout = 4 * time.Second
	if r.IntN(60) == 0 {
		p.timeout = time.Duration(300+r.IntN(20_000)) * time.Microsecond
	}
	switch r.IntN(8) {
	case 0:
		p.txOptions.IsoLevel = pgx.ReadCommitted
	case 1:
		p.txOptions.IsoLevel = pgx.RepeatableRead
	case 2:
		p.txOptions.IsoLevel = pgx.Serializable
	}
	switch r.IntN(6) {
	case 0:
		p.retries = 0
	case 1:
		p.retries = 10
	}
}

// hash returns the hash of the payload. Requests with different keys usually have the same payload.
func (p *plan) hash() idem.Hash { return idem.HashBytes([]byte(p.payload)) }

// options returns the options of the call. DoTx accepts only the first three.
func (p *plan) options() []idem.Option {
	options := []idem.Option{idem.WithTTL(p.ttl), idem.WithMaxResponse(maxResponse), idem.WithSealer(p.sealer)}
	if p.verb == history.DoTx {
		return options
	}
	options = append(options, idem.WithWait(p.wait), idem.WithTxOptions(p.txOptions))
	if p.retries >= 0 {
		options = append(options, idem.WithRetries(p.retries))
	}
	if p.likely {
		options = append(options, idem.WithReplayLikely())
	}
	return options
}

func (p *plan) call() *history.Call {
	return &history.Call{
		Verb: p.verb, Scope: p.scope, Key: p.key, Payload: p.payload, Fn: p.fn, TTL: p.ttl, Wait: p.wait, Wall: time.Now().UnixMicro(),
	}
}
