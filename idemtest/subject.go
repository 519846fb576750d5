package idemtest

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/idemtest/internal/faultproxy"
)

// outcome is what a caller can conclude from an answer. The outcome decides whether a client
// retries.
type outcome int

const (
	done    outcome = iota // success
	refused                // a failure after which the caller must not retry
	again                  // the caller must retry with the same key
)

// answer is the result that a caller received.
type answer struct {
	outcome outcome
	text    string // the part that a duplicate must receive too
	empty   bool   // the answer has no content
	brief   string // short form for reports
	err     error  // the error that a function returned; for an HTTP answer, errBrokenTx or nil

	fields map[string][]string // header fields of an HTTP response
}

// errBrokenTx stands for an HTTP answer with the problem type idemhttp.TypeBrokenTx. The problem
// type means that the handler ended its transaction or left it aborted.
var errBrokenTx = errors.New("the transaction of the handler is broken")

// ask sends one request to the code under test and returns its answer.
type ask func(ctx context.Context) answer

// subject is the code under test, with a database for one trial. A field of type ask, except
// request, is nil if the suite has no such request.
type subject struct {
	pool    *pgxpool.Pool
	proxy   *faultproxy.Proxy
	request ask
	// resent sends the same request with other values in the header fields that proxies change.
	resent ask
	// other sends the same key with another payload.
	other ask
	// stranger sends the same key and payload for another principal.
	stranger ask
	// next sends a request with another key.
	next ask
	// plain sends request with each of the two plainKeys. The suite uses it only if similarKey is
	// set.
	plain [2]ask
	// similarKey sends request with one character of its key changed. It is nil if next is set, or
	// if request has no Idempotency-Key header.
	similarKey ask
	effects    func(ctx context.Context) (int, error)
	countSQL   string // SQL that counts the records

	previous ask    // sends request to the code of the previous release
	renew    func() // switches the subject to a new process, with a new pool and proxy
}

// plainKeys are two keys that are not UUIDs. A handler that accepts any key must tell them apart.
var plainKeys = [2]string{"idemtest-first", "idemtest-second"}

// suite is the state of one run of a suite: the settings, and what the first trial learned about an
// execution without faults.
type suite struct {
	*report
	open func(s *trialTB) *subject
	// effects, records and first describe one execution without faults: the number of its effects
	// and records, and its answer.
	effects  int
	records  int
	first    answer
	patience time.Duration // how long a client retries after a failure
	within   time.Duration // how long after the first request a duplicate may come

	// steps says that an execution consists of several transactions, so that effects can be
	// committed before the record of the key.
	steps bool
	parks bool // a crash may park the operation

	// Each of these fields is the promise to report for one mistake: unrecorded for a success without
	// a record, early for a success before the commit, taken for a new key that is treated as a
	// duplicate, repeated for a repeated effect. The promises differ between the suites.
	unrecorded, early, taken, repeated promise
	// checkOther checks the answer to another payload under the same key, and reports a broken
	// promise.
	checkOther func(u *suite, s *subject, given answer)

	// toCommit is 1 + the number of flights (round trips) before the first COMMIT. It is 0 if the
	// number is not known yet, or if there is no COMMIT.
	toCommit int

	// varies says that executions without faults differ in their answers. The suite then does not
	// compare the answers of different executions.
	varies bool
}

const (
	defaultPatience = 30 * time.Second
	defaultWithin   = time.Hour
)

// counts contains the numbers of records and effects at one moment.
type counts struct {
	// The records are counted twice, before and after the effects, because an execution in the
	// background may commit in between. Every record in before must have its effect in effects.
	// Every effect in effects must have its record in after.
	before, after int
	effects       int
}

// count counts records and effects. It fails the test if the database or Effects returns an
// error.
func (u *suite) count(s *subject) (b counts) {
	u.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), u.patience)
	defer cancel()
	records := func() (n int) {
		if err := s.pool.QueryRow(ctx, s.countSQL).Scan(&n); err != nil {
			u.Fatalf("idemtest: count the records: %v", err)
		}
		return n
	}
	b.before = records()
	var err error
	if b.effects, err = s.effects(ctx); err != nil {
		u.Fatalf("idemtest: Effects: %v", err)
	}
	b.after = records()
	return b
}

// call sends one request. If the code does not return within u.patience, its context ends and call
// waits for the same time again. If the code has still not returned, call reports a broken promise
// and ends the test.
func (u *suite) call(ctx context.Context, what ask) answer {
	ctx, cancel := context.WithTimeout(ctx, u.patience)
	defer cancel()
	given := make(chan answer, 1)
	go func() {
		// The deferred send also runs if the code ends its goroutine, as t.FailNow does.
		a := answer{outcome: again, brief: "by the end of its goroutine"}
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

// retry repeats a request like a client until the answer is final. final is false if no answer
// within u.patience was final. The delay between attempts doubles up to half a second.
func (u *suite) retry(what ask) (last answer, final bool) {
	begin := time.Now()
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 500*time.Millisecond) {
		if last = u.call(context.Background(), what); last.outcome != again {
			return last, true
		}
		if time.Since(begin) > u.patience {
			return last, false
		}
		time.Sleep(pause)
	}
}

// trial runs f on a new subject, with a database of its own. maxConns is the size of the pool; 0
// means the default size.
func (u *suite) trial(maxConns int32, f func(s *subject)) {
	u.Helper()
	runTrial(u.TB, maxConns, func(s *trialTB) { f(u.open(s)) })
}

// recordsSQL counts the records that must have an effect. A record of a rejection has none and does
// not count.
const recordsSQL = `SELECT count(*) FROM idem.records WHERE state <> 'failed'`

// recovered runs f and returns the value of its panic, or nil.
func recovered(f func()) (reason any) {
	defer func() { reason = recover() }()
	f()
	return nil
}
