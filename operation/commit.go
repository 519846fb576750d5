package operation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/presence"
	"github.com/idem-go/idem/internal/txn"
)

// Checkpoint commits the steps so far. It does nothing if all of them are committed. Use it after a
// Tx whose rows or locks other transactions need, before a Tx that takes long, and between groups
// of Tx steps if there are hundreds. An error stops the run: return it.
func (op *Op) Checkpoint() error {
	if !op.taking.TryLock() {
		return ErrMisused
	}
	defer op.taking.Unlock()
	switch {
	case op.over:
		return ErrMisused
	case op.stopError() != nil:
		return op.stopped
	case op.ctx.Err() != nil:
		return op.interrupted()
	case op.tx == nil && len(op.pending) == 0:
		return nil
	}
	return op.commit(commit{})
}

// ensureTx prepares the transaction for the next step. It opens a transaction with a savepoint if
// none is open. If a step has run since the savepoint, ensureTx replaces the savepoint.
func (op *Op) ensureTx() error {
	switch {
	case op.tx == nil:
		return op.open(db.Savepoint{})
	case op.dirty:
		if err := op.tx.Ask(op.ctx, db.KeepStep{}, db.Savepoint{}); lacksSavepoint(err) {
			return op.txEnded(txn.Ended("its savepoint is gone", nil), nil)
		} else if err != nil {
			return op.failed(err)
		}
		op.dirty = false
	}
	return nil
}

// open begins a transaction, and sets idem.claim in it, which the fence of a commit checks. Then it
// sends the requests.
func (op *Op) open(requests ...txn.Request) error {
	requests = append([]txn.Request{db.Reclaim{ExecutionID: op.work.operation}}, requests...)
	tx, err := op.work.execution.Engine().Open(op.ctx, requests...)
	if err != nil {
		return op.failed(err)
	}
	op.tx, op.dirty = tx, false
	return nil
}

// rollBack rolls back the transaction, if one is open. err is the reason, or nil: it decides
// whether the connection returns to the pool or is closed.
func (op *Op) rollBack(err error) {
	if op.tx != nil {
		op.tx.CloseAfter(err)
		op.tx = nil
	}
}

// failed stops the run because of a database error. After a transient error the function runs
// again. If the context has ended, the caller has left.
func (op *Op) failed(err error) error {
	switch {
	case op.ctx.Err() != nil:
		return op.interrupted()
	case txn.Transient(err), txn.Stale(err):
		return op.halt(stopRerun, err)
	}
	return op.halt(stopFailed, err)
}

// lacksSavepoint reports whether err says that the savepoint of the run does not exist, or that no
// transaction is open. The fn of a step has then ended the transaction.
func lacksSavepoint(err error) bool { return txn.HasCode(err, "3B001", "25P01") }

// txEnded stops a run in which the fn of a step has ended the transaction. s is the step, or nil if
// the step is not known. The writes of Tx steps since the last commit may be committed without the
// rows that record these steps. Another run would repeat the writes, so the operation parks. Before
// the first commit of the operation, the call fails instead, as with idem.Do.
func (op *Op) txEnded(err error, s *step) error {
	if op.work.epoch == 0 {
		return op.halt(stopFailed, err)
	}
	var steps []string
	for i := range op.pending {
		if p := &op.pending[i].Step; isInTx(p) {
			steps = append(steps, fmt.Sprintf("%s %q", p.Kind, p.Name))
		}
	}
	if s != nil {
		steps = append(steps, fmt.Sprintf("%s %q", s.kind, s.name))
	}
	written := "its steps"
	if len(steps) > 0 {
		written = strings.Join(steps, ", ")
	}
	return op.parkFor(err, 0, op.current, ReasonTxEnded, "the fn of a step has ended the transaction, and what %.500s wrote may be committed, and is not recorded: "+
		"look at it, and Retry with a fn that does not, or Cancel", written)
}

// isInTx reports whether a pending row belongs to a done Tx or UndoTx. The writes of that step are
// then in the open transaction.
func isInTx(s *db.Step) bool {
	return s.Outcome == db.StepDone && (s.Kind == db.TxStep || s.Kind == db.UndoStep && s.Policy == "")
}

// commit says what a commit contains besides the pending steps and signals.
type commit struct {
	at      db.At             // where the operation is after the commit; zero: no step is in progress, and it is due at once
	release bool              // the commit releases the operation, so that no process owns it
	always  bool              // commit even if the operation was canceled after this run loaded its record
	state   db.OperationState // the new state of the operation; empty: running
	failure *db.StepError     // the error that Show returns as the last one; nil: none
	with    []txn.Request     // further requests, sent before the COMMIT
	wakes   bool              // the commit makes another operation due
}

// commit commits the writes of the steps together with the rows that record the steps. A fence
// protects the commit: the statement that updates the row of the operation fails, so that nothing
// is committed, if another process has claimed the operation, or if the transaction is not the one
// that was begun for it. It also fails if the operation was canceled after this run loaded its
// record, unless always is set.
//
// commit first opens a transaction if none is open, and makes this process visible. Other processes
// claim an operation if they do not see its owner. Then commit sends the fence, the rows and the
// COMMIT in one round trip. The first commit of an operation inserts the row of the operation in
// place of the fence.
func (op *Op) commit(c commit) error {
	if op.tx == nil {
		if err := op.open(); err != nil {
			return err
		}
	}
	w := op.work
	if err := op.adoptInstance(); err != nil {
		return err
	}
	if !c.release {
		c.at.Owner = w.instance.Number
	}
	advance := db.AdvanceOperation{
		OperationID: w.operation, Epoch: w.epoch, State: cmp.Or(c.state, db.OperationRunning), Undoing: op.undoing || w.journal.undoing,
		At: c.at, Error: c.failure,
	}
	if !c.always {
		advance.Canceled, advance.WithoutCalling = &w.journal.canceled, w.journal.withoutCalling
	}
	requests, err := op.requests(&advance, c)
	if err != nil {
		return op.halt(stopFailed, err)
	}
	begun := time.Now()
	if err := op.tx.Commit(op.ctx, requests...); err != nil {
		return op.commitFailed(err, &advance)
	}
	w.epoch = max(w.epoch, 1)
	w.instance.Confirm()
	op.applyCommit(&advance, begun)
	if c.wakes {
		w.instance.WakeWorkers()
	}
	return nil
}

// suspend makes a commit that releases the operation, and stops the run. When the operation is due,
// a process resumes it.
func (op *Op) suspend(c commit) error {
	c.release = true
	if err := op.commit(c); err != nil {
		return err
	}
	return op.halt(stopSuspended, nil)
}

// requests returns the statements of a commit: the fence (see commit) or the INSERT of the
// operation, the rows of the steps, the changes of signals, and the requests of c.
func (op *Op) requests(advance *db.AdvanceOperation, c commit) ([]txn.Request, error) {
	w := op.work
	requests := []txn.Request{advance}
	if w.epoch == 0 {
		input, err := seal(w.execution.Sealer(), w.input, db.BoundInput(w.operation))
		if err != nil {
			return nil, err
		}
		requests = []txn.Request{
			&db.HoldKey{Key: &w.key, Room: db.Held},
			&db.BeginOperation{Key: &w.key, Name: w.definition.name, RecordTTL: w.ttl, ClaimedAt: w.createdAt, Input: input, At: c.at},
		}
	}
	for _, r := range op.pending {
		var err error
		if r.Step.Value, err = seal(w.execution.Sealer(), r.Step.Value, db.BoundStep(w.operation, &r.Step)); err != nil {
			return nil, err
		}
		requests = append(requests, &r)
	}
	requests = append(requests, op.signals...)
	if op.usesSignals && advance.State != db.OperationRunning {
		requests = append(requests, db.DropSignals{OperationID: w.operation})
	}
	return append(requests, c.with...), nil
}

// adoptInstance gives the operation the instance of this process, if it has none yet, and registers
// the operation. Without a session, the lease of the instance becomes visible with the COMMIT. So
// other processes never see an owner that they take for dead.
func (op *Op) adoptInstance() error {
	if op.work.instance != nil {
		return nil
	}
	instance, err := presence.AdoptIn(op.ctx, op.work.execution.Engine(), op.tx)
	if err != nil {
		return op.failed(err)
	}
	op.work.instance = instance
	return op.register()
}

// register adds the operation to the list of operations that this process works on. If other
// processes no longer see this process, the context of the run ends.
func (op *Op) register() error {
	if !op.work.instance.Enter(op.work.operation, op.cancel) {
		return op.halt(stopRerun, presence.ErrLost)
	}
	return nil
}

// applyCommit updates the journal after a commit. A call that is not parallel is recorded as begun
// in the row of the operation. It has no row in idem.steps yet, but the journal gets a step for it.
func (op *Op) applyCommit(advance *db.AdvanceOperation, begun time.Time) {
	w := op.work
	for i := range op.pending {
		s := op.pending[i].Step
		if s.Seq == w.rowless {
			w.rowless = 0
		}
		s.DueAt = w.journal.rows[s.Seq].DueAt
		w.journal.add(s)
		delete(w.unrecorded, s.Seq)
	}
	at := &advance.At
	if _, ok := w.journal.rows[at.Seq]; !ok && begins(at) {
		w.journal.add(db.Step{Seq: at.Seq, Kind: at.Kind, Name: at.Step, Outcome: db.StepBegun, Undos: at.Undos, Policy: at.Policy})
		w.rowless = at.Seq
	}
	if at.Seq == 0 || at.Seq != w.at.Seq {
		w.begunAt = begun
	}
	w.at, w.journal.undoing, w.journal.runs = *at, advance.Undoing, 0
	op.tx, op.pending, op.signals = nil, nil, nil
}

// begins reports whether a call or an undo has begun at the position.
func begins(at *db.At) bool {
	return at.Seq > 0 && (at.Kind == db.CallStep || at.Kind == db.UndoStep)
}

// commitFailed stops the run after a COMMIT that failed or was not acknowledged:
//
//   - Not acknowledged: the COMMIT may have happened. The next run loads the record, which shows
//     whether it has. If this was the first commit, package idem looks up the record by its key.
//   - db.Gone: a statement did not find the row that it requires. If this was the first commit, or
//     if the row of the operation was as expected, the fn of a step has ended the transaction.
//     Otherwise commitFenced finds the cause.
//   - Refused by the server for another reason, such as a deferred constraint: attribute chooses
//     the step that gets the error in the next run.
func (op *Op) commitFailed(err error, advance *db.AdvanceOperation) error {
	var unacknowledged *txn.UnknownError
	first := op.work.epoch == 0
	if errors.As(err, &unacknowledged) {
		op.rollBack(nil)
		op.noteUnsent(advance)
		if first {
			op.work.epoch = 1 // the epoch of the operation, if the COMMIT has happened
			return op.halt(stopUnknown, unacknowledged.Err)
		}
		if txn.Internal(unacknowledged.Err) && op.attribute(unacknowledged.Err) { // a trigger may have failed; the next run reads the record first
			return op.rerunUncounted(unacknowledged.Err)
		}
		return op.halt(stopRerun, unacknowledged.Err)
	}
	switch {
	case op.ctx.Err() != nil && errors.Is(err, op.ctx.Err()):
		return op.interrupted()
	case txn.HasCode(err, db.Gone) && (first || advance.Found):
		return op.txEnded(txn.Ended("the claimed record is gone, or the transaction is another one", nil), nil)
	case txn.HasCode(err, db.Gone):
		return op.commitFenced(err)
	}
	if !txn.Transient(err) && !txn.Stale(err) && op.ctx.Err() == nil && op.attribute(err) {
		return op.rerunUncounted(err)
	}
	return op.failed(err)
}

// noteUnsent notes the calls that a COMMIT without acknowledgement was to record as begun. If the
// COMMIT has happened, the record says that attempts may have been sent. This process knows that it
// sent none, so the calls are not in doubt for it.
func (op *Op) noteUnsent(advance *db.AdvanceOperation) {
	w := op.work
	note := func(seq int) {
		if s, begun := w.journal.rows[seq]; !begun || s.Outcome == db.StepNotSent {
			w.unsent[seq] = true
		}
	}
	if begins(&advance.At) {
		note(advance.At.Seq)
	}
	for i := range op.pending {
		if s := &op.pending[i].Step; s.Outcome == db.StepBegun {
			note(s.Seq)
		}
	}
}

// commitFenced stops the run after a commit whose fence (see commit) did not match. It reads the
// row of the operation to find the cause: the operation was canceled, or another process has
// claimed, parked or ended it. If neither is the case, fn has ended the transaction and begun
// another one. commitFenced reads on the connection of the commit, because after a failover another
// connection may reach a server with other commits.
func (op *Op) commitFenced(err error) error {
	tx := op.tx
	op.tx = nil
	show := db.ShowOperation{OperationID: op.work.operation}
	if err := tx.CloseAsking(op.ctx, err, &show); err != nil {
		return op.failed(err)
	}
	if show.State != db.OperationRunning || show.Epoch != op.work.epoch {
		return op.halt(stopLost, nil)
	}
	if show.Canceled != op.work.journal.canceled || show.WithoutCalling != op.work.journal.withoutCalling {
		return op.rerunUncounted(errCancelNoticed)
	}
	return op.txEnded(txn.Ended("a statement of fn did, and began another", nil), nil)
}

// attribute chooses a Tx that may have caused the failure of a COMMIT, for example by a deferred
// constraint. It starts with the last Tx of the transaction. The next run checks the constraints
// right after the chosen Tx, and this Tx gets the error if the check fails. If the check passes and
// the COMMIT fails again, attribute chooses the Tx before. It reports false if no Tx is left, if
// err is not an error of the server, or before the first commit. The run then fails with err.
func (op *Op) attribute(err error) bool {
	var refused *pgconn.PgError
	if !errors.As(err, &refused) || op.work.epoch == 0 {
		return false
	}
	w := op.work
	for _, r := range slices.Backward(op.pending) {
		if isInTx(&r.Step) && !w.checkAfter[r.Step.Seq] {
			w.checkAfter[r.Step.Seq] = true
			return true
		}
	}
	return false
}

// A process knows the outcome of a call before the outcome is recorded. However the run ends, the
// process tries to record the outcome. If the database is unavailable, the process keeps the
// outcome in memory, for its next run of the operation.

// releaseLimit is the timeout of the statements that release or park an operation. They do not use
// the context of the caller, so that they are sent even after it has ended.
const releaseLimit = 5 * time.Second

// outcomesLimit limits how long a process tries to record the outcomes of calls. If an outcome is
// not recorded when the operation is released, the call is in doubt for every other process.
const outcomesLimit = 15 * time.Second

// outcomesInMemory has the outcomes of calls that this process could not record yet.
var outcomesInMemory = memory{kept: map[string]keptOutcomes{}}

// memory has outcomes of calls by the ids of at most maxInMemory operations.
type memory struct {
	mu   sync.Mutex
	kept map[string]keptOutcomes
}

const maxInMemory = 1000

// keptOutcomes are outcomes by the positions of their calls, from a run in the given epoch.
type keptOutcomes struct {
	epoch    int
	outcomes map[int]db.Step
}

// put stores outcomes of an operation. Beyond maxInMemory operations it drops the outcomes of
// another one, whose calls are then in doubt.
func (m *memory) put(operation string, epoch int, outcomes map[int]db.Step) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.kept[operation] = keptOutcomes{epoch, outcomes}
	for other := range m.kept {
		if len(m.kept) <= maxInMemory {
			break
		}
		if other != operation {
			delete(m.kept, other)
		}
	}
}

// take removes and returns the outcomes of an operation, for a run in the given epoch. It returns
// nil if there are none. If that is not the epoch after the one of put, another process may have
// run the operation, and take drops the failed outcomes.
func (m *memory) take(operation string, epoch int) map[int]db.Step {
	m.mu.Lock()
	defer m.mu.Unlock()
	kept := m.kept[operation]
	delete(m.kept, operation)
	if epoch != kept.epoch+1 {
		dropFailures(kept.outcomes)
	}
	return kept.outcomes
}

// forget removes the outcomes of an operation.
func (m *memory) forget(operation string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.kept, operation)
}

// dropFailures removes the outcomes of calls that have failed. It is called if another process may
// have had the operation since: an attempt of that process may have succeeded.
func dropFailures(outcomes map[int]db.Step) {
	maps.DeleteFunc(outcomes, func(_ int, s db.Step) bool { return s.Outcome == db.StepFailed })
}

// recordOutcomes commits the outcomes of calls that are not recorded yet, and nothing else of the
// run. The run has ended, and its transaction is closed. recordOutcomes commits even if the
// operation was canceled meanwhile. It retries for outcomesLimit, unless the server refuses the
// commit, another process has claimed the operation, or a value cannot be sealed. If it does not
// succeed, the outcomes stay in memory. The parameter at is the new position of the operation if no
// call remains without an outcome.
func (w *work) recordOutcomes(at db.At) {
	outcomes := w.unrecordedOutcomes()
	if len(outcomes) == 0 || w.instance == nil {
		w.keepInMemory()
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), outcomesLimit)
	defer cancel()
	c := commit{always: true, at: w.positionAfter(outcomes, at)}
	for pause := txn.RetryPause; ; {
		op := &Op{work: w, ctx: ctx, cancel: func(error) {}, pending: outcomes}
		if op.commit(c) == nil {
			outcomesInMemory.forget(w.operation)
			return
		}
		op.rollBack(nil)
		var refused *pgconn.PgError
		s := op.stopped
		worthRetrying := s.kind == stopRerun || s.kind == stopFailed && !errors.As(s.err, &refused) && !errors.Is(s.err, errSealing)
		if !worthRetrying || txn.Sleep(ctx, pause.Next()) != nil {
			w.keepInMemory()
			return
		}
	}
}

// unrecordedOutcomes returns rows for the outcomes that are not recorded yet, in the order of the
// calls. It skips calls that are not recorded as begun.
func (w *work) unrecordedOutcomes() []db.RecordStep {
	var outcomes []db.RecordStep
	for seq, s := range w.unrecorded {
		if begun := w.journal.rows[seq]; begun.Name == s.Name && begun.Kind == s.Kind && begun.Outcome == db.StepBegun {
			outcomes = append(outcomes, db.RecordStep{OperationID: w.operation, Step: s})
		}
	}
	slices.SortFunc(outcomes, func(a, b db.RecordStep) int { return cmp.Compare(a.Step.Seq, b.Step.Seq) })
	return outcomes
}

// positionAfter returns the position of the operation after the outcomes are recorded: that of the
// first call that is recorded as begun and still has no outcome, or the parameter at if there is
// none.
func (w *work) positionAfter(outcomes []db.RecordStep, at db.At) db.At {
	for seq := 1; seq <= w.journal.steps; seq++ {
		s := w.journal.rows[seq]
		ended := slices.ContainsFunc(outcomes, func(r db.RecordStep) bool { return r.Step.Seq == seq })
		if s.Outcome == db.StepBegun && !ended {
			at.Kind, at.Step, at.Seq, at.Undos, at.Policy = s.Kind, s.Name, s.Seq, s.Undos, s.Policy
			return at
		}
	}
	return at
}

// keepInMemory keeps the unrecorded outcomes in memory, for the next run of the operation in this
// process.
func (w *work) keepInMemory() {
	if len(w.unrecorded) > 0 {
		outcomesInMemory.put(w.operation, w.epoch, w.unrecorded)
	}
}
