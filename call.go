package idem

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/flight"
	"github.com/idem-go/idem/internal/longcall"
	"github.com/idem-go/idem/internal/roundtrip"
	"github.com/idem-go/idem/internal/txn"
)

// call is one Do from its arguments to its answer.
type call struct {
	settings
	scope, key string
	hash       Hash
	execution  execution
	waiting    waiting
	trace      trace
	own        flight.Flight[flightID, outcome]
}

// newCall checks the arguments of Do and DoTx.
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

// fits says if the call cannot have its connections from pool.
func (c *call) fits(pool *pgxpool.Pool) error {
	switch {
	case pool == nil && c.source == nil:
		return errors.New("idem: pool is nil")
	case c.source != nil && c.source.Pool() != pool:
		return errors.New("idem: pool is not the one beneath the *sql.DB of idemsql.Through")
	}
	return nil
}

// do answers the call as the leader of its key, or as a follower of another call.
func (c *call) do(ctx context.Context, pool *pgxpool.Pool) (Result, error) {
	c.begin(pool)
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

// begin makes the engine of the call.
func (c *call) begin(pool *pgxpool.Pool) {
	c.execution.engine = txn.Engine{
		Pool: pool, Source: c.source, Options: c.txOptions, Limits: c.limits.txn, Prepared: c.execution.work.prepared(c.wait == 0),
		Rehearse: c.rehearse,
	}
}

// lead brings the key to an answer, and leaves it to the followers. An error is left to no follower, unless it says whose the
// record is: then one of the followers leads next.
func (c *call) lead(ctx context.Context, f *flight.Flight[flightID, outcome]) (Result, error) {
	c.execution.engine.Asker = f
	settled := false
	defer func() { // also if fn panics
		if !settled {
			f.Abandon()
		}
	}()
	r, err := c.settle(ctx, f)
	if err != nil {
		if settled = c.isForDuplicates(err); settled {
			f.Finish(outcome{hash: c.hash, ended: err, freshUntil: time.Now()}, outcome.copied)
		}
		return Result{}, err
	}
	result, err := answerFrom(&r, c.key, &c.execution.key, c.sealer)
	o := outcome{hash: c.hash, result: result, freshUntil: c.execution.freshUntil(&r)}
	if err != nil {
		o.mismatch = mismatchIn(err)
	}
	if settled = err == nil || o.mismatch != nil; settled {
		f.Finish(o, outcome.copied)
	}
	if err == nil && result.Replayed {
		c.trace.age = r.LoadedAt.Sub(r.CreatedAt)
	}
	return result, err
}

// isForDuplicates reports whether an error is the answer of those, too, who have waited for this call.
func (c *call) isForDuplicates(err error) bool {
	_, is := errors.AsType[longcall.ForDuplicates](err)
	return is && c.execution.work.outlasts()
}

// settle claims the key and executes, or finds the record, or gives up waiting for another holder.
func (c *call) settle(ctx context.Context, f *flight.Flight[flightID, outcome]) (db.Record, error) {
	x := &c.execution
	if c.replayLikely {
		switch found, err := x.ask(ctx); {
		case found:
			return x.record, nil
		case errors.Is(err, ErrPoolExhausted): // to claim the key would be to wait for as long again
			return db.Record{}, err
		}
	}
	again := reruns{left: c.retries, pause: txn.RetryPause, trace: &c.trace}
	poll := pollPause
	for inherited := c.inherits(f); ; inherited = false {
		found, err := running, error(nil)
		if !inherited {
			found, err = x.claim(ctx)
		}
		if err != nil {
			if err := again.after(ctx, err, txn.Transient(err)); err != nil {
				return db.Record{}, err
			}
			continue
		}
		if err, ended := x.work.waited(ctx, x, found); ended {
			return db.Record{}, err
		}
		if found == answered {
			return x.record, nil
		}
		f.MarkBusy()
		if found == running {
			f.Note(string(c.hash[:]) + x.record.ExecutionID)
		}
		ending, err := c.proceed(ctx, found)
		switch ending {
		case recorded:
			return x.record, nil
		case failed:
			return db.Record{}, err
		case rejecting, holding:
		case elsewhere:
			if inherited { // it may have ended long ago
				continue
			}
			if err := c.waiting.forHolder(ctx, poll.Next()); err != nil {
				return db.Record{}, err
			}
		case undone:
			if err := again.after(ctx, err, true); err != nil {
				return db.Record{}, err
			}
		case unknown:
			panic("idem: an outcome stayed unknown") // resolve does not return it
		}
	}
}

// proceed does what follows from a finding that is no answer, and asks the record the outcome of a COMMIT that was not acknowledged.
func (c *call) proceed(ctx context.Context, found finding) (ending, error) {
	x, ending, err := &c.execution, elsewhere, error(nil)
	switch found {
	case claimed:
		ending, err = x.begin(ctx)
	case running:
		ending, err = x.work.resume(ctx, x)
	case answered, held: // by a transaction: it has to be waited for
	}
	if ending == unknown {
		ending, err = x.resolve(ctx, c.limits.resolve, c.ttl, err)
	}
	return ending, err
}

// inherits makes the operation that the leader before has found under way the one that this call has waited for, too: if it was cancelled
// meanwhile, the work is not begun anew.
func (c *call) inherits(f *flight.Flight[flightID, outcome]) bool {
	if !c.execution.work.outlasts() {
		return false
	}
	operation, same := strings.CutPrefix(f.Noted(), string(c.hash[:]))
	if operation == "" || !same {
		return false
	}
	c.execution.record.ExecutionID = operation
	return true
}

// reruns counts how often a call may begin again.
type reruns struct {
	left  int
	pause txn.Pauses
	trace *trace
}

// after pauses because of err, or returns it if there is to be no other run.
func (a *reruns) after(ctx context.Context, err error, worthIt bool) error {
	if !worthIt || a.left == 0 || ctx.Err() != nil {
		return err
	}
	a.left--
	a.trace.event(EventRetried, err)
	if txn.Sleep(ctx, a.pause.Next()) != nil {
		return err
	}
	return nil
}

// function is the fn of a Do or a DoTx.
type function func(pgx.Tx) (Response, error)

func (function) prepared(atOnce bool) []*roundtrip.Statement {
	if atOnce {
		return preparedAtOnce
	}
	return prepared
}

func (function) behindClaim() []txn.Request { return nil }

func (fn function) begin(ctx context.Context, x *execution) (ending, error) { return x.run(ctx, fn) }

func (function) resume(context.Context, *execution) (ending, error) { return elsewhere, nil }

func (function) waited(context.Context, *execution, finding) (error, bool) { return nil, false }

func (function) outlasts() bool { return false }

// joined is one DoTx: a claim, fn's writes and a response inside a transaction of the caller's.
type joined struct {
	execution
	does   joinedWork
	inVain func() error
	part   *txn.Joined
}

// joinedWork is what a call does with its key in a transaction of the caller's: the fn of DoTx, or the Start of an operation.
type joinedWork interface {
	// execute works behind the claim.
	execute(ctx context.Context, j *joined) (db.Record, error)
	// meet answers where an operation has the key.
	meet(j *joined) (db.Record, error)
}

func (fn function) execute(ctx context.Context, j *joined) (db.Record, error) {
	return j.execute(ctx, fn)
}

func (function) meet(j *joined) (db.Record, error) { return db.Record{}, j.inVain() }

// start makes the claimed key an operation's, from the commit of the caller's transaction on.
type start func(claimedAt time.Time) ([]txn.Request, error)

func (s start) execute(ctx context.Context, j *joined) (db.Record, error) { return j.hold(ctx, s) }

func (start) meet(j *joined) (db.Record, error) {
	j.record.Closed = false // it has no response yet
	return j.record, nil
}

// join does the work of the call inside tx.
func (c *call) join(ctx context.Context, tx pgx.Tx, work joinedWork) (result Result, err error) {
	part, err := txn.Join(ctx, tx, c.limits.txn)
	if err != nil {
		return Result{}, err
	}
	defer part.Leave()
	part.Rehearse = c.rehearse
	j := &joined{execution: c.execution, does: work, inVain: c.waiting.inProgress, part: part}
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

// run claims the key, and executes or finds the record.
func (j *joined) run(ctx context.Context) (db.Record, error) {
	found, err := j.claim(ctx)
	switch {
	case err != nil:
		return db.Record{}, j.part.Undo(hint(err))
	case found == running:
		return j.does.meet(j)
	case found == held:
		return db.Record{}, j.inVain()
	case found == answered && j.record.State == db.Processing && j.record.SameHash:
		return db.Record{}, j.inVain() // as a rule, that of a DoTx or Do further up in the same transaction
	case found == answered:
		return j.record, nil
	}
	r, err := j.does.execute(ctx, j)
	if err != nil {
		return db.Record{}, j.part.Undo(err)
	}
	return r, nil
}

// claim claims the key under a savepoint. If it does not get it, what it did is undone.
func (j *joined) claim(ctx context.Context) (finding, error) {
	j.claiming = db.Claim{Key: &j.key, AtOnce: true}
	j.loading = db.Load{Key: &j.key}
	if err := j.part.Prepare(ctx, db.StatementsAtOnce); err != nil {
		return held, err // of a table that is locked, not of a key that is held
	}
	err := j.part.Begin(ctx, db.StatementsAtOnce, &j.claiming, &j.loading)
	return j.found(ctx, err)
}

// found tells what a claim that was answered with err has found, and undoes it if that is not the key.
func (j *joined) found(ctx context.Context, err error) (finding, error) {
	found := held
	if err == nil {
		found, err = j.find(ctx, j.part.Ask)
	}
	switch {
	case txn.LockTimedOut(err) && j.part.Saves():
		return held, j.part.Undo(nil)
	case txn.LockTimedOut(err): // the server has aborted the transaction
		return held, nil
	case err != nil || found == claimed:
		return found, err
	case j.part.Saves():
		return found, j.part.Undo(nil) // its lock, and what it has set
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

// hold makes the key an operation's, from the commit of the caller's transaction on.
func (j *joined) hold(ctx context.Context, start start) (db.Record, error) {
	requests, err := start(j.claimedAt)
	if err != nil {
		return db.Record{}, err
	}
	if j.previous != "" {
		requests = append(requests, db.Reclaim{ExecutionID: j.previous})
	}
	if err := j.part.Complete(ctx, requests...); err != nil {
		return db.Record{}, completeError(err)
	}
	return db.Record{SameHash: true, ExecutionID: j.key.ExecutionID, State: db.Running, CreatedAt: j.claimedAt}, nil
}

// reject undoes what fn did, and records the answer under a claim of its own.
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
		return db.Record{}, j.inVain()
	case found == answered:
		return j.record, nil
	}
	return j.complete(ctx, resp, db.Failed)
}

// complete records the response. It becomes valid with the caller's transaction.
func (j *joined) complete(ctx context.Context, resp Response, state db.State) (db.Record, error) {
	resp = resp.normal()
	c, err := j.completion(resp, state)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return db.Record{}, err
	}
	j.trace.event(EventRecording, nil)
	requests := []txn.Request{c}
	if j.previous != "" {
		requests = append(requests, db.Reclaim{ExecutionID: j.previous})
	}
	if err := j.part.Complete(ctx, requests...); err != nil {
		return db.Record{}, completeError(err)
	}
	if !c.Found {
		return db.Record{}, txn.Ended("the record was not completed: is there a trigger on idem.records?", nil)
	}
	return completedRecord(c, resp, j.claimedAt), nil
}
