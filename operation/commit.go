package operation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/presence"
	"github.com/idem-go/idem/internal/txn"
)

// Checkpoint commits what the steps so far have done, where nothing else would: before something
// long, or something that others wait for, or between groups of Tx where there are hundreds.
func (op *Op) Checkpoint() error {
	if !op.taking.TryLock() {
		return ErrMisused
	}
	defer op.taking.Unlock()
	switch {
	case op.over:
		return ErrMisused
	case op.stopped != nil:
		return op.stopped
	case op.ctx.Err() != nil:
		return op.interrupted()
	case op.tx == nil && len(op.pending) == 0:
		return nil
	}
	return op.commit(commit{})
}

// begin makes sure that there is a transaction, with a savepoint behind which nothing has run.
func (op *Op) begin() error {
	switch {
	case op.tx == nil:
		return op.open(db.Savepoint{})
	case op.used:
		if err := op.tx.Ask(op.ctx, db.KeepStep{}, db.Savepoint{}); lacksSavepoint(err) {
			return op.txEnded(txn.Ended("its savepoint is gone", nil), nil)
		} else if err != nil {
			return op.failed(err)
		}
		op.used = false
	}
	return nil
}

// open begins a transaction of the operation.
func (op *Op) open(requests ...txn.Request) error {
	requests = append([]txn.Request{db.Reclaim{ExecutionID: op.work.operation}}, requests...)
	tx, err := op.work.call.Engine().Open(op.ctx, requests...)
	if err != nil {
		return op.failed(err)
	}
	op.tx, op.used = tx, false
	return nil
}

// close rolls the transaction back, if there is one.
func (op *Op) close(err error) {
	if op.tx != nil {
		op.tx.CloseAfter(err)
		op.tx = nil
	}
}

// failed ends the run because of an error of the database.
func (op *Op) failed(err error) error {
	switch {
	case op.ctx.Err() != nil:
		return op.interrupted()
	case txn.Transient(err), txn.Stale(err):
		return op.halt(stopAgain, err)
	}
	return op.halt(stopBroken, err)
}

// lacksSavepoint reports whether a statement about the savepoint was refused because the
// transaction is another one, or has ended.
func lacksSavepoint(err error) bool { return txn.HasCode(err, "3B001", "25P01") }

// txEnded ends a run in which a fn has ended the transaction: that of s, or one that is not known.
// What the Tx since the last commit have written may be committed without their rows, and another
// run would write it again. So the operation is parked. Before anything of it is recorded, the
// record of its key shows the same, as behind idem.Do.
func (op *Op) txEnded(err error, s *step) error {
	if op.work.epoch == 0 {
		return op.halt(stopBroken, err)
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

// isInTx reports whether a step that is to be recorded has written in the transaction.
func isInTx(s *db.Step) bool {
	return s.Outcome == db.StepDone && (s.Kind == db.TxStep || s.Kind == db.UndoStep && s.Policy == "")
}

// commit is what a commit says besides the steps that it records.
type commit struct {
	at      db.At
	free    bool              // no process owns the operation after it
	always  bool              // also if the operation was canceled, and this run does not know
	state   db.OperationState // running if it is empty
	failure *lastError        // the last error stays; without one it is cleared
	with    []txn.Request
	wakes   bool // another operation becomes due by it
}

// commit makes durable what the steps have done, together with their rows. It fences: if another
// process has taken the operation up, nothing of it is committed.
func (op *Op) commit(c commit) error {
	if op.tx == nil {
		if err := op.open(); err != nil {
			return err
		}
	}
	w := op.work
	if err := op.appear(); err != nil {
		return err
	}
	if !c.free {
		c.at.Owner = w.instance.Number
	}
	advance := db.AdvanceOperation{
		OperationID: w.operation, Epoch: w.epoch, State: cmp.Or(c.state, db.OperationRunning), Undoing: op.unwinds || w.journal.undoing,
		At: c.at, Error: w.stepError(c.failure),
	}
	if !c.always {
		advance.Canceled, advance.WithoutCalling = &w.journal.canceled, w.journal.withoutCalling
	}
	requests, err := op.requests(&advance, c)
	if err != nil {
		return op.halt(stopBroken, err)
	}
	begun := time.Now()
	if err := op.tx.Commit(op.ctx, requests...); err != nil {
		return op.uncommitted(err, &advance)
	}
	w.epoch = max(w.epoch, 1)
	w.instance.Confirm()
	op.committed(&advance, begun)
	if c.wakes {
		w.instance.WakeWorkers()
	}
	return nil
}

// requests are what a commit sends: the fence, the steps, the signals.
func (op *Op) requests(advance *db.AdvanceOperation, c commit) ([]txn.Request, error) {
	w := op.work
	requests := []txn.Request{advance}
	if w.epoch == 0 {
		input, err := seal(w.call.Sealer(), w.input, db.BoundInput(w.operation))
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
		if r.Step.Value, err = seal(w.call.Sealer(), r.Step.Value, db.BoundStep(w.operation, &r.Step)); err != nil {
			return nil, err
		}
		requests = append(requests, &r)
	}
	for _, taken := range op.signals {
		requests = append(requests, taken)
	}
	if op.awaits && advance.State != db.OperationRunning {
		requests = append(requests, db.DropSignals{OperationID: w.operation})
	}
	return append(requests, c.with...), nil
}

// appear makes sure that this process is seen by others before it owns anything.
func (op *Op) appear() error {
	if op.work.instance != nil {
		return nil
	}
	instance, err := presence.AdoptIn(op.ctx, op.work.call.Engine(), op.tx)
	if err != nil {
		return op.failed(err)
	}
	op.work.instance = instance
	return op.register()
}

// register puts the operation on the list of those that this process works on.
func (op *Op) register() error {
	if !op.work.instance.Enter(op.work.operation, op.cancel) {
		return op.halt(stopAgain, presence.ErrLost)
	}
	return nil
}

// committed takes over into the journal what a commit has recorded.
func (op *Op) committed(advance *db.AdvanceOperation, begun time.Time) {
	w := op.work
	for i := range op.pending {
		s := op.pending[i].Step
		if s.Seq == w.rowless {
			w.rowless = 0
		}
		if old, ok := w.journal.row(s.Seq); ok {
			s.DueAt = old.DueAt
		}
		w.journal.add(s)
		delete(w.outcomes, s.Seq)
	}
	if at := &advance.At; at.Seq > 0 && (at.Kind == db.CallStep || at.Kind == db.UndoStep) {
		if _, ok := w.journal.row(at.Seq); !ok {
			w.journal.add(db.Step{Seq: at.Seq, Kind: at.Kind, Name: at.Step, Outcome: db.StepBegun, Undos: at.Undos, Policy: at.Policy})
			w.rowless = at.Seq
		}
	}
	same := w.at.Seq == advance.At.Seq && w.at.Seq != 0
	w.at, w.journal.undoing, w.journal.runs = advance.At, advance.Undoing, 0
	if !same {
		w.elapsed = func() time.Duration { return time.Since(begun) }
	}
	op.tx, op.pending, op.signals = nil, nil, nil
}

// uncommitted ends the run, as follows from a COMMIT that did not succeed.
func (op *Op) uncommitted(err error, advance *db.AdvanceOperation) error {
	var unacknowledged *txn.UnknownError
	first := op.work.epoch == 0
	if errors.As(err, &unacknowledged) {
		op.close(nil)
		op.noteUnsent(advance)
		if first {
			op.work.epoch = 1 // if it has happened
			return op.halt(stopUnknown, unacknowledged.Err)
		}
		if txn.Internal(unacknowledged.Err) && op.attribute(unacknowledged.Err) { // it may be that of a Tx; the record is read first
			return op.haltFree(unacknowledged.Err)
		}
		return op.halt(stopAgain, unacknowledged.Err)
	}
	switch {
	case op.ctx.Err() != nil && errors.Is(err, op.ctx.Err()):
		return op.interrupted()
	case txn.HasCode(err, db.Gone) && (first || advance.Found):
		return op.txEnded(txn.Ended("the claimed record is gone, or the transaction is another one", nil), nil)
	case txn.HasCode(err, db.Gone):
		return op.refused(err)
	}
	if !txn.Transient(err) && !txn.Stale(err) && op.ctx.Err() == nil && op.attribute(err) {
		return op.haltFree(err)
	}
	return op.failed(err)
}

// noteUnsent remembers which calls were to be begun by a COMMIT whose acknowledgement was lost. If
// it has happened they are recorded as begun, and this process knows that no attempt was sent.
func (op *Op) noteUnsent(advance *db.AdvanceOperation) {
	w := op.work
	note := func(seq int) {
		if s, begun := w.journal.row(seq); !begun || s.Outcome == db.StepNotSent {
			w.unsent[seq] = true
		}
	}
	if advance.At.Kind == db.CallStep || advance.At.Kind == db.UndoStep {
		note(advance.At.Seq)
	}
	for i := range op.pending {
		if s := &op.pending[i].Step; s.Outcome == db.StepBegun {
			note(s.Seq)
		}
	}
}

// refused ends the run because a commit was fenced off: because the operation was canceled, because
// another process has it, or because fn has ended the transaction that was begun for it, and begun
// another one.
func (op *Op) refused(err error) error {
	tx := op.tx
	op.tx = nil
	show := db.ShowOperation{OperationID: op.work.operation}
	if tx == nil {
		return op.failed(err)
	}
	if err := tx.CloseAsking(op.ctx, err, &show); err != nil { // of the same server, or it may seem that fn has done it
		return op.failed(err)
	}
	ours := show.State == db.OperationRunning && show.Epoch == op.work.epoch
	if ours && (show.Canceled != op.work.journal.canceled || show.WithoutCalling != op.work.journal.withoutCalling) {
		return op.haltFree(errCancelNoticed)
	}
	if ours {
		return op.txEnded(txn.Ended("a statement of fn did, and began another", nil), nil)
	}
	return op.halt(stopLost, nil)
}

// attribute prepares another run after a COMMIT that the server has refused, for example because of
// a deferred constraint. In the next run the constraints are checked after the last Tx of that
// transaction, and this Tx gets the error. If they were checked there, the Tx before it is next.
// attribute reports whether there is such a Tx.
func (op *Op) attribute(err error) bool {
	var refused *pgconn.PgError
	if !errors.As(err, &refused) || op.work.epoch == 0 {
		return false
	}
	w := op.work
	for i := len(op.pending) - 1; i >= 0; i-- {
		s := &op.pending[i].Step
		if !isInTx(s) || w.checked[s.Seq] {
			continue
		}
		if w.checked == nil {
			w.checked = map[int]bool{}
		}
		w.checked[s.Seq] = true
		return true
	}
	return false
}

// A call returns before its outcome is recorded. The outcome is recorded however the run ends. While
// the database is unavailable, the process keeps it in memory.

// releaseLimit bounds statements that are sent after the end of the caller's context.
const releaseLimit = 5 * time.Second

// outcomesLimit bounds how long a process tries to record the outcomes of calls. An outcome that is
// not recorded when the operation is released is a call in doubt for every other process.
const outcomesLimit = 15 * time.Second

// outcomesInMemory has the outcomes of calls that this process could not record yet.
var outcomesInMemory memory

// memory has outcomes of calls, by the ids of their operations. It drops the oldest of too many.
type memory struct {
	mu       sync.Mutex
	outcomes map[string]map[int]db.Step
	ids      []string // in the order in which they came
}

const maxInMemory = 1000

func (m *memory) put(operation string, returned map[int]db.Step) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.outcomes == nil {
		m.outcomes = map[string]map[int]db.Step{}
	}
	m.drop(operation) // it is the latest again
	m.outcomes[operation] = returned
	m.ids = append(m.ids, operation)
	if len(m.ids) > maxInMemory {
		m.drop(m.ids[0])
	}
}

// take removes and returns the outcomes of an operation.
func (m *memory) take(operation string) (map[int]db.Step, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	returned, ok := m.outcomes[operation]
	m.drop(operation)
	return returned, ok
}

func (m *memory) drop(operation string) {
	if _, ok := m.outcomes[operation]; ok {
		delete(m.outcomes, operation)
		m.ids = slices.DeleteFunc(m.ids, func(id string) bool { return id == operation })
	}
}

// recordOutcomes records what calls have returned since the last commit, and nothing else of the
// run, which is over and has no transaction. It reports whether there was anything to record, and
// it is recorded. It commits also if the operation was canceled and this run does not know.
func (w *work) recordOutcomes(c commit) bool {
	learned := w.unrecordedOutcomes()
	if len(learned) == 0 || w.instance == nil {
		w.keepInMemory()
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), outcomesLimit)
	defer cancel()
	c.always = true
	c.at = w.remaining(learned, c.at)
	for pause := txn.RetryPause; ; {
		op := &Op{work: w, ctx: ctx, cancel: func(error) {}, pending: learned}
		if op.commit(c) == nil {
			outcomesInMemory.take(w.operation)
			return true
		}
		op.close(nil)
		if !op.isWorthRetrying() || txn.Sleep(ctx, pause.Next()) != nil {
			w.keepInMemory()
			return false
		}
	}
}

// isWorthRetrying reports whether another attempt at a failed commit may succeed: not if the server
// has refused the commit, or a value cannot be sealed.
func (op *Op) isWorthRetrying() bool {
	var refused *pgconn.PgError
	switch s := op.stopped; s.why {
	case stopAgain:
		return true
	case stopBroken:
		return !errors.As(s.err, &refused) && !errors.Is(s.err, errSealing)
	}
	return false
}

// unrecordedOutcomes returns what calls have returned and is not recorded, in their order.
func (w *work) unrecordedOutcomes() []db.RecordStep {
	var learned []db.RecordStep
	for seq, s := range w.outcomes {
		if begun, ok := w.journal.row(seq); ok && begun.Name == s.Name && begun.Kind == s.Kind && begun.Outcome == db.StepBegun {
			learned = append(learned, db.RecordStep{OperationID: w.operation, Step: s})
		}
	}
	slices.SortFunc(learned, func(a, b db.RecordStep) int { return cmp.Compare(a.Step.Seq, b.Step.Seq) })
	return learned
}

// remaining returns where the operation is when these calls have ended: at one that was begun
// together with them and has not, if there is one.
func (w *work) remaining(learned []db.RecordStep, at db.At) db.At {
	for seq := 1; seq <= len(w.journal.steps); seq++ {
		s := w.journal.steps[seq]
		ended := slices.ContainsFunc(learned, func(r db.RecordStep) bool { return r.Step.Seq == seq })
		if s.Outcome == db.StepBegun && !ended {
			at.Kind, at.Step, at.Seq, at.Undos, at.Policy = s.Kind, s.Name, s.Seq, s.Undos, s.Policy
			return at
		}
	}
	return at
}

// keepInMemory keeps the outcomes that could not be recorded.
func (w *work) keepInMemory() {
	if len(w.outcomes) > 0 {
		outcomesInMemory.put(w.operation, w.outcomes)
	}
}

// takeFromMemory is the counterpart of keepInMemory, for the next run of this process.
func (w *work) takeFromMemory() {
	w.outcomes = map[int]db.Step{}
	if known, ok := outcomesInMemory.take(w.operation); ok {
		w.outcomes = known
	}
}
