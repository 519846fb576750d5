package idemtest

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/idemtest/internal/faultproxy"
)

// outcome is what the caller can conclude from an answer. It decides whether a client retries.
type outcome int

const (
	done    outcome = iota // success
	refused                // a final failure
	again                  // the caller must retry with the same key
)

// answer is the result that a caller received.
type answer struct {
	outcome outcome
	text    string // the part that a duplicate must receive too
	empty   bool   // the answer has no content
	brief   string // short form for reports
	err     error  // the error of a function, or errBrokenTx

	fields map[string][]string // header fields of an HTTP response
}

// errBrokenTx is the error of an HTTP answer with the problem type idemhttp.TypeBrokenTx: the
// handler ended its transaction or left it aborted.
var errBrokenTx = errors.New("the transaction of the handler is broken")

// ask sends one request to the code under test and returns its answer.
type ask func(ctx context.Context) answer

// subject is the code under test, with a database for one trial. The asks other than request are
// nil if the suite has no such request.
type subject struct {
	pool    *pgxpool.Pool
	proxy   *faultproxy.Proxy
	request ask
	// resent is the same request with other values in the header fields that proxies change.
	resent ask
	// other has the same key and another payload.
	other ask
	// stranger has the same key and payload, and another principal.
	stranger ask
	// next has another key.
	next ask
	// plain are requests under the two plainKeys, sent only if there is a similarKey.
	plain [2]ask
	// similarKey is request with one character of its key changed. It is nil if the suite has next,
	// or if request has no key in its header.
	similarKey ask
	effects    func(ctx context.Context) (int, error)
	countSQL   string // SQL that counts the records

	previous ask    // request, run by the code of the previous release
	renew    func() // switches the subject to a new process, with a new pool and proxy
}

// plainKeys are two keys that are not UUIDs. A handler that accepts any key must tell them apart.
var plainKeys = [2]string{"idemtest-first", "idemtest-second"}

// suite is the state that all suites share: the settings, and what the first trial learned about
// one undisturbed execution.
type suite struct {
	*report
	open func(s *trialTB) *subject
	// effects, records and first describe one undisturbed execution: how many effects and records
	// it makes, and its answer.
	effects  int
	records  int
	first    answer
	patience time.Duration // how long a client retries after a failure
	within   time.Duration // how long after the first request a duplicate may come

	// steps: an execution consists of several transactions, so that effects can be committed before
	// the record.
	steps bool
	parks bool // a crash may park the operation

	// These promises differ between the suites: a report about a consumer is about messages.
	unrecorded, early, taken, repeated promise
	// checkOther judges the answer to another payload under the same key.
	checkOther func(u *suite, s *subject, given answer)

	// toCommit is 1 + the number of flights before the first COMMIT. It is 0 if that is not known
	// yet, or if there is no COMMIT.
	toCommit int

	// varies: undisturbed executions differ in their answers, so answers of different executions
	// cannot be compared.
	varies bool
}

const (
	defaultPatience = 30 * time.Second
	defaultWithin   = time.Hour
)

// counts is the number of records and effects at one moment.
type counts struct {
	// The records are counted twice, before and after the effects, because an execution in the
	// background may commit in between. A record that was counted before must have its effect. An
	// effect must have a record that is counted after it.
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

// call sends one request. If the code does not return within u.patience, call cancels its context
// and waits as long again. After that it reports the promise returns and ends the test.
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

// retry repeats a request like a client until the answer is final. final is false if there was none
// within u.patience. The delay between attempts doubles up to half a second.
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

// trial runs f on a new subject, with a database of its own. maxConns is the size of its pool, 0
// the default.
func (u *suite) trial(maxConns int32, f func(s *subject)) {
	u.Helper()
	runTrial(u.TB, maxConns, func(s *trialTB) { f(u.open(s)) })
}

// recordsSQL counts the records, except rejections: a rejection has no effect.
const recordsSQL = `SELECT count(*) FROM idem.records WHERE state <> 'failed'`

// recovered runs f and returns the value of its panic, or nil.
func recovered(f func()) (reason any) {
	defer func() { reason = recover() }()
	f()
	return nil
}
