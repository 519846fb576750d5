package idemtest

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/idemtest/internal/faultproxy"
)

// fate is what an answer means to the caller.
type fate int

const (
	done    fate = iota // success
	refused             // final, and no success
	again               // to be asked again with the same key
)

// answer is what a caller was given.
type answer struct {
	fate  fate
	text  string // all that a duplicate has to be given as well
	empty bool   // there is nothing in it
	brief string // for a message
	err   error  // of a function, or errBrokenTx

	fields map[string][]string // of the header of a response
}

// errBrokenTx says that package idemhttp has answered that the handler has ended its transaction, or has left it aborted.
var errBrokenTx = errors.New("the transaction of the handler is broken")

// ask makes one request.
type ask func(ctx context.Context) answer

// subject is the code that is on trial, on a database of its own.
type subject struct {
	pool     *pgxpool.Pool
	proxy    *faultproxy.Proxy
	request  ask
	echo     ask    // the same request, as another hop may have changed it; nil if there is none
	other    ask    // the same key, another payload; nil if there is none
	stranger ask    // the same key and payload, another principal; nil if there is none
	next     ask    // another key; nil if there is none
	plain    [2]ask // requests under two keys that are no UUID, where there is a sibling
	sibling  ask    // the same request with its key changed, where next is nil; nil if it cannot be made
	effects  func(ctx context.Context) (int, error)
	memory   string // the SQL that counts what is on record

	previous ask    // request, by the code of the last release
	renew    func() // go on as another process
}

// plainKeys are keys that are no UUID.
var plainKeys = [2]string{"idemtest-first", "idemtest-second"}

// suite is what all suites have in common.
type suite struct {
	*report
	open     func(s *scene) *subject
	effects  int           // of one execution
	records  int           // of one execution
	first    answer        // of one execution
	patience time.Duration // for how long a retry may go unanswered
	within   time.Duration // how late a duplicate may come

	steps bool // an execution is several transactions: its effects may be ahead of its record
	parks bool // it may stop, and wait for a person

	forgotten, early, taken, repeated promise                                  // what it means here
	swallowed                         func(u *suite, s *subject, given answer) // judges the answer to another payload

	toCommit int // 1 + flights to the first COMMIT; 0 is not known yet, or none

	varies bool // executions with nothing in their way have different answers
}

const (
	defaultPatience = 30 * time.Second
	defaultWithin   = time.Hour
)

// books are what is in the database, and elsewhere, at one moment between attempts.
type books struct {
	before, behind int // on record, counted before and behind the effects: what is under way may commit meanwhile
	effects        int
}

// balance counts.
func (u *suite) balance(s *subject) (b books) {
	u.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), u.patience)
	defer cancel()
	count := func() (n int) {
		if err := s.pool.QueryRow(ctx, s.memory).Scan(&n); err != nil {
			u.Fatalf("idemtest: count what is on record: %v", err)
		}
		return n
	}
	b.before = count()
	var err error
	if b.effects, err = s.effects(ctx); err != nil {
		u.Fatalf("idemtest: Effects: %v", err)
	}
	b.behind = count()
	return b
}

// call asks once, and gives up on code that does not return.
func (u *suite) call(ctx context.Context, what ask) answer {
	ctx, cancel := context.WithTimeout(ctx, u.patience)
	defer cancel()
	given := make(chan answer, 1)
	go func() {
		a := answer{fate: again, brief: "by the end of its goroutine"}
		defer func() { given <- a }()
		a = what(ctx)
	}()
	select {
	case a := <-given:
		return a
	case <-ctx.Done():
	}
	select {
	case a := <-given:
		return a
	case <-time.After(u.patience):
		u.breaks(returns, "%v after the end of its context it was still running", u.patience)
		u.FailNow()
		return answer{}
	}
}

// insist asks until there is a final answer, as a client does. It is false if there is none in time.
func (u *suite) insist(what ask) (last answer, final bool) {
	begin := time.Now()
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 500*time.Millisecond) {
		if last = u.call(context.Background(), what); last.fate != again {
			return last, true
		}
		if time.Since(begin) > u.patience {
			return last, false
		}
		time.Sleep(pause)
	}
}

// stage plays one trial.
func (u *suite) stage(maxConns int32, f func(s *subject)) {
	u.Helper()
	play(u.TB, maxConns, func(s *scene) { f(u.open(s)) })
}

// recordsSQL counts what is on record, but for what was rejected, which has no effect.
const recordsSQL = `SELECT count(*) FROM idem.records WHERE state <> 'failed'`

// recovered runs f and returns what it panics with.
func recovered(f func()) (reason any) {
	defer func() { reason = recover() }()
	f()
	return nil
}
