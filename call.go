package idem

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/internal/bridge"
	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/flight"
	"github.com/idem-go/idem/internal/roundtrip"
	"github.com/idem-go/idem/internal/txn"
)

// call is the state of one call of Do or DoTx: its arguments, its options and its progress.
type call struct {
	settings
	scope, key string
	hash       Hash
	execution  execution
	waiting    waiting
	trace      trace
	own        flight.Flight[flightID, leaderResult] // joined by later calls if this call is the first for its key
}

// newCall checks the arguments of Do and DoTx. It returns a call even with an error, so that an
// observer can be notified of the error.
func newCall(scope, key string, hash Hash, fn func(pgx.Tx) (Response, error), opts []Option) (*call, error) {
	c := &call{scope: scope, key: key, hash: hash}
	c.trace = trace{started: time.Now()}
	err := c.settings.set(opts)
	c.trace.observer = c.observer
	switch {
	case err != nil:
		return c, err
	case fn == nil:
		return c, errors.New("idem: fn is nil")
	}
	if err := errors.Join(checkNames(scope, key), checkHash(hash)); err != nil {
		return c, err
	}
	c.waiting = waiting{key: key, wait: c.wait, trace: &c.trace}
	c.execution = execution{work: function(fn), wait: c.wait, maxResponse: c.maxResponse, sealer: c.sealer, trace: &c.trace}
	c.execution.key = db.NewKey(scope, key, hash, newExecutionID(), c.ttl)
	if c.lock != nil {
		c.execution.key.UseLock(c.lock(scope, key))
	}
	return c, nil
}

// traced calls run, and notifies the observer of the start and the end of the call, even if run
// panics.
func (c *call) traced(ctx context.Context, joined bool, run func() (Result, error)) (result Result, err error) {
	c.trace.start(ctx, c.name, c.scope, c.key, joined)
	returned := false
	defer func() { c.trace.end(returned, result, err) }()
	result, err = run()
	returned = true
	return result, err
}

// checkPool returns an error if the call cannot take its connections from pool.
func (c *call) checkPool(pool *pgxpool.Pool) error {
	switch {
	case pool == nil && c.source == nil:
		return errors.New("idem: pool is nil")
	case c.source != nil && c.source.Pool() != pool:
		return errors.New("idem: pool is not the pool of the *sql.DB in idemsql.Through; pass that pool, or nil where it has none")
	}
	return nil
}

// do runs the call and returns its result. Among the calls of a key in one process, one is the
// leader, which asks the database. The others are followers, which wait in memory and share the
// leader's result. A follower starts over if it cannot use the result, for example because the
// record may have expired. If the leader gives up, one follower becomes the leader.
func (c *call) do(ctx context.Context, pool *pgxpool.Pool) (Result, error) {
	c.setEngine(pool)
	id := flightID{pool: pool, scope: c.scope, key: c.key}
	if pool == nil {
		id.source = c.source
	}
	f, leads := flights.Join(id, &c.own)
	for !leads {
		o, ending, err := c.waiting.follow(ctx, f)
		if err != nil {
			return Result{}, err
		}
		if ending == flight.Leading {
			break
		}
		if result, err, ok := o.share(c.key, c.hash); ok && c.trace.started.Before(o.freshUntil) {
			c.trace.age = max(result.CompletedAt.Sub(result.CreatedAt), 0)
			return result, err
		}
		f, leads = flights.Join(id, &c.own)
	}
	return c.lead(ctx, f)
}

func (c *call) setEngine(pool *pgxpool.Pool) {
	c.execution.engine = txn.Engine{
		Pool: pool, Source: c.source, Options: c.txOptions, Limits: c.limits.txn, Prepared: c.execution.work.statements(c.wait == 0),
		Rehearse: c.rehearse,
	}
}

// lead runs the call as leader of the flight f and shares its result with the followers. The only
// errors that it shares are a mismatch and an error for which isForDuplicates is true. After any
// other error, and after a panic of fn, one follower becomes the leader.
func (c *call) lead(ctx context.Context, f *flight.Flight[flightID, leaderResult]) (Result, error) {
	c.execution.engine.Asker = f
	shared := false
	defer func() {
		if !shared {
			f.Abandon()
		}
	}()
	r, err := c.claimOrReplay(ctx, f)
	if err != nil {
		if shared = c.isForDuplicates(err); shared {
			f.Finish(leaderResult{hash: c.hash, ended: err, freshUntil: time.Now()}, leaderResult.copied)
		}
		return Result{}, err
	}
	result, err := answerFrom(&r, c.key, &c.execution.key, c.sealer)
	o := leaderResult{hash: c.hash, result: result, freshUntil: c.execution.freshUntil(&r)}
	if err != nil {
		errors.As(err, &o.mismatch)
	}
	if shared = err == nil || o.mismatch != nil; shared {
		f.Finish(o, leaderResult.copied)
	}
	if err == nil && result.Replayed {
		c.trace.age = r.LoadedAt.Sub(r.CreatedAt)
	}
	return result, err
}

// isForDuplicates reports whether the followers return err, too. It is true only for an error of an
// operation with the key of this call. A fn may return such an error of an operation with another
// key, which does not concern the followers.
func (c *call) isForDuplicates(err error) bool {
	_, is := errors.AsType[bridge.ForDuplicates](err)
	return is && c.execution.work.isOperation()
}

// claimOrReplay returns the record of the key. It claims the key and executes the call, or loads
// the record of another execution. While another transaction holds the key, claimOrReplay waits and
// tries to claim the key again, until the time of WithWait has passed. It runs again after
// transient errors.
func (c *call) claimOrReplay(ctx context.Context, f *flight.Flight[flightID, leaderResult]) (db.Record, error) {
	x := &c.execution
	if c.replayLikely {
		found, err := x.loadOnly(ctx)
		if found || errors.Is(err, ErrPoolExhausted) { // a claim would get no connection either
			return x.record, err
		}
	}
	retry := retries{left: c.retries, pause: txn.RetryPause, trace: &c.trace}
	poll := pollPause
	// If the previous leader waited for an operation, this call resumes that operation before it
	// claims the key. If the operation was undone meanwhile, its key is free, and a claim would
	// begin another operation.
	for inherited := c.inherit(f); ; inherited = false {
		found, err := x.claimUnless(ctx, inherited)
		if err != nil {
			if err := retry.after(ctx, err, txn.Transient(err)); err != nil {
				return db.Record{}, err
			}
			continue
		}
		if err, ended := x.work.endedMeanwhile(ctx, x, found); ended {
			return db.Record{}, err
		}
		if found == answered {
			return x.record, nil
		}
		f.MarkBusy()
		if found == running {
			f.SetNote(string(c.hash[:]) + x.record.ExecutionID)
		}
		ending, err := c.proceed(ctx, found)
		if leavesOperation(found, ending, err) { // the next leader of f resumes the operation: see inherit
			f.SetNote(string(c.hash[:]) + x.key.ExecutionID)
		}
		switch ending {
		case recorded:
			return x.record, nil
		case failed:
			return db.Record{}, err
		case rejecting, lookAgain:
		case inProgress:
			if inherited { // claim at once, because the operation may have ended long ago
				continue
			}
			if err := c.waiting.beforeNextLook(ctx, poll.Next()); err != nil {
				return db.Record{}, err
			}
		case rolledBack:
			if err := retry.after(ctx, err, true); err != nil {
				return db.Record{}, err
			}
		case unknown:
			panic("idem: an outcome stayed unknown") // proceed never returns unknown
		}
	}
}

// leavesOperation reports whether the call has begun an operation that is still in progress.
func leavesOperation(found finding, ending ending, err error) bool {
	return found == claimed && (ending == inProgress || errors.Is(err, ErrInProgress))
}

// proceed executes the call if its key is claimed, and resumes the operation if an operation holds
// the key. If COMMIT was not acknowledged, proceed finds out the outcome, so it never returns
// unknown.
func (c *call) proceed(ctx context.Context, found finding) (ending, error) {
	x, ending, err := &c.execution, inProgress, error(nil)
	switch found {
	case claimed:
		ending, err = x.begin(ctx)
	case running:
		ending, err = x.work.resume(ctx, x)
	case answered, held: // the call has to wait for the transaction that holds the key
	}
	if ending == unknown {
		ending, err = x.resolve(ctx, c.limits.resolve, c.ttl, err)
	}
	return ending, err
}

// inherit makes the call wait for the operation that the previous leader of f waited for. It
// reports whether there is such an operation. If a person has canceled the operation, the call then
// reports the cancellation instead of beginning another operation.
func (c *call) inherit(f *flight.Flight[flightID, leaderResult]) bool {
	if !c.execution.work.isOperation() {
		return false
	}
	operation, same := strings.CutPrefix(f.Note(), string(c.hash[:]))
	if operation == "" || !same {
		return false
	}
	c.execution.record.ExecutionID = operation
	return true
}

// retries counts how many more times a call may run, and pauses before each run.
type retries struct {
	left  int
	pause txn.Pauses
	trace *trace
}

// after pauses and returns nil if the call may run again. It returns err if err is not retryable,
// no retry is left, or ctx has ended.
func (a *retries) after(ctx context.Context, err error, retryable bool) error {
	if !retryable || a.left == 0 || ctx.Err() != nil {
		return err
	}
	a.left--
	a.trace.event(EventRetried, err)
	if txn.Sleep(ctx, a.pause.Next()) != nil {
		return err
	}
	return nil
}

// function is the work of Do and DoTx: a fn that runs in the transaction of the claim.
type function func(pgx.Tx) (Response, error)

func (function) statements(atOnce bool) []*roundtrip.Statement {
	if atOnce {
		return preparedAtOnce
	}
	return prepared
}

func (function) afterClaim() []txn.Request { return nil }

func (fn function) begin(ctx context.Context, x *execution) (ending, error) { return x.run(ctx, fn) }

func (function) resume(context.Context, *execution) (ending, error) { return inProgress, nil }

func (function) endedMeanwhile(context.Context, *execution, finding) (error, bool) { return nil, false }

func (function) isOperation() bool { return false }

// joined is a call of DoTx, or of Start in package operation. It claims the key and does its work
// inside a transaction of the caller.
type joined struct {
	execution
	work       joinedWork
	inProgress func() error // returns the error for a key that another call holds
	part       *txn.Joined
}

// joinedWork is what a joined call does with its key inside the caller's transaction.
type joinedWork interface {
	// execute does the work after the key was claimed.
	execute(ctx context.Context, j *joined) (db.Record, error)
	// foundOperation returns the result of the call if an operation already holds the key.
	foundOperation(j *joined) (db.Record, error)
}

func (fn function) execute(ctx context.Context, j *joined) (db.Record, error) {
	return j.execute(ctx, fn)
}

func (function) foundOperation(j *joined) (db.Record, error) { return db.Record{}, j.inProgress() }

// start is the work of Start in package operation. It returns the requests that give the claimed
// key to an operation.
type start func(claimedAt time.Time) ([]txn.Request, error)

func (s start) execute(ctx context.Context, j *joined) (db.Record, error) { return j.start(ctx, s) }

func (start) foundOperation(j *joined) (db.Record, error) {
	j.record.Closed = false // a running operation has no response to decrypt
	return j.record, nil
}

// join does the work of the call inside tx, the caller's transaction. If the work fails or panics,
// join rolls tx back to a savepoint. If there is no savepoint, it aborts tx.
func (c *call) join(ctx context.Context, tx pgx.Tx, work joinedWork) (result Result, err error) {
	part, err := txn.Join(ctx, tx, c.limits.txn)
	if err != nil {
		return Result{}, err
	}
	defer part.Leave()
	part.Rehearse = c.rehearse
	j := &joined{execution: c.execution, work: work, inProgress: c.waiting.inProgress, part: part}
	returned := false
	defer func() {
		if !returned { // fn has panicked
			_ = part.Undo(nil)
		}
	}()
	r, err := j.run(ctx)
	returned = true
	if err != nil {
		return Result{}, err
	}
	result, err = answerFrom(&r, c.key, &c.execution.key, c.sealer)
	if err == nil && result.Replayed {
		c.trace.age = r.LoadedAt.Sub(r.CreatedAt)
	}
	return result, err
}

// run claims the key and does the work, or returns the record of another execution.
func (j *joined) run(ctx context.Context) (db.Record, error) {
	found, err := j.claim(ctx)
	switch {
	case err != nil:
		return db.Record{}, j.part.Undo(hint(err))
	case found == running:
		return j.work.foundOperation(j)
	case found == held:
		return db.Record{}, j.inProgress()
	case found == answered && j.record.State == db.Processing && j.record.SameHash:
		return db.Record{}, j.inProgress() // usually the record of a Do or DoTx whose fn makes this call
	case found == answered:
		return j.record, nil
	}
	r, err := j.work.execute(ctx, j)
	if err != nil {
		return db.Record{}, j.part.Undo(err)
	}
	return r, nil
}

// claim claims the key. It sets a savepoint before, unless earlier calls in tx have set the maximum
// of 32. If the key is not free, claim undoes its changes.
func (j *joined) claim(ctx context.Context) (finding, error) {
	j.claiming = db.Claim{Key: &j.key, AtOnce: true}
	j.loading = db.Load{Key: &j.key}
	if err := j.part.Prepare(ctx, db.StatementsAtOnce); err != nil {
		return held, err // a lock timeout here means a locked table, not a key in progress
	}
	err := j.part.Begin(ctx, db.StatementsAtOnce, &j.claiming, &j.loading)
	return j.found(ctx, err)
}

// found returns the finding of a claim whose round trip returned err. If the claim did not get the
// key, found undoes what the claim has changed.
func (j *joined) found(ctx context.Context, err error) (finding, error) {
	found := held
	if err == nil {
		found, err = j.find(ctx, j.part.Ask)
	}
	switch {
	case txn.LockTimedOut(err) && j.part.Saves():
		return held, j.part.Undo(nil)
	case txn.LockTimedOut(err): // without a savepoint, the timeout has aborted the transaction
		return held, nil
	case err != nil || found == claimed:
		return found, err
	case j.part.Saves():
		return found, j.part.Undo(nil) // releases the advisory lock and resets the settings that the claim changed
	}
	return found, j.part.Ask(ctx, db.Calm{})
}

// execute runs fn and records its response.
func (j *joined) execute(ctx context.Context, fn func(pgx.Tx) (Response, error)) (db.Record, error) {
	j.trace.attempts++
	j.trace.event(EventExecuting, nil)
	var resp Response
	var rejected *rejection
	undo, err := j.part.Run(j.key.ExecutionID, func(tx pgx.Tx) (bool, error) {
		var err error
		resp, err = fn(tx)
		if errors.As(err, &rejected) && !errors.Is(err, ErrTxEnded) {
			return true, nil
		}
		return false, err
	})
	switch {
	case err != nil:
		return db.Record{}, err
	case undo:
		return j.reject(ctx, rejected.response)
	}
	return j.complete(ctx, resp, db.Completed)
}

// start gives the key to an operation. After the commit of the caller's transaction, the operation
// holds the key.
func (j *joined) start(ctx context.Context, start start) (db.Record, error) {
	requests, err := start(j.claimedAt)
	if err != nil {
		return db.Record{}, err
	}
	if err := j.completeWith(ctx, requests...); err != nil {
		return db.Record{}, err
	}
	return db.Record{SameHash: true, ExecutionID: j.key.ExecutionID, State: db.Running, CreatedAt: j.claimedAt}, nil
}

// reject rolls back the writes of fn and records resp as its rejection. The rollback also releases
// the key, so reject claims the key again before it records resp.
func (j *joined) reject(ctx context.Context, resp Response) (db.Record, error) {
	if _, err := resp.normal().check(j.maxResponse); err != nil {
		return db.Record{}, err
	}
	j.claiming = db.Claim{Key: &j.key, AtOnce: true}
	j.loading = db.Load{Key: &j.key}
	err := j.part.Restart(ctx, &j.claiming, &j.loading)
	if err != nil && !txn.LockTimedOut(err) {
		return db.Record{}, err
	}
	found, err := j.found(ctx, err)
	switch {
	case err != nil:
		return db.Record{}, err
	case found == held, found == running:
		return db.Record{}, j.inProgress()
	case found == answered:
		return j.record, nil
	}
	return j.complete(ctx, resp, db.Failed)
}

// complete records the response. The record is committed with the caller's transaction.
func (j *joined) complete(ctx context.Context, resp Response, state db.State) (db.Record, error) {
	resp = resp.normal()
	c, err := j.completion(&j.key, resp, state)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return db.Record{}, err
	}
	j.trace.event(EventRecording, nil)
	if err := j.completeWith(ctx, c); err != nil {
		return db.Record{}, err
	}
	if !c.Found {
		return db.Record{}, txn.Ended("the record was not completed: is there a trigger on idem.records?", nil)
	}
	return completedRecord(c, resp, j.claimedAt), nil
}

// completeWith sends requests as the last statements of this call. If this call is nested in
// another call, the outer call has claimed a key in the same transaction. completeWith then
// restores the session setting that names the outer claim.
func (j *joined) completeWith(ctx context.Context, requests ...txn.Request) error {
	if j.previous != "" {
		requests = append(requests, db.Reclaim{ExecutionID: j.previous})
	}
	if err := j.part.Complete(ctx, requests...); err != nil {
		return completeError(err)
	}
	return nil
}
