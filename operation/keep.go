package operation

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/idem-go/idem/internal/store"
	"github.com/idem-go/idem/internal/txn"
)

// What calls have returned, and undos outside of Postgres have done, is known to this process before it is on record. It is put on
// record however the run ends, and stays in the memory of the process where the database cannot be told.

// letGoLimit bounds what is said to the database after a caller has left.
const letGoLimit = 5 * time.Second

// keepLimit bounds for how long it is tried to put on record what calls have returned, in an outage too: what is not on record when the
// operation is let go is a call in doubt for every other process, and parks one that is Once.
const keepLimit = 15 * time.Second

// unkept has what calls have returned that this process could not put on record yet.
var unkept memory

// memory remembers what calls have returned, by the ids of operations. It forgets the oldest of too many.
type memory struct {
	mu       sync.Mutex
	returned map[string]map[int]store.Step
	ids      []string // in the order in which they came
}

const maxUnkept = 1000

func (m *memory) put(operation string, returned map[int]store.Step) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.returned == nil {
		m.returned = map[string]map[int]store.Step{}
	}
	m.drop(operation) // it is the latest again
	m.returned[operation] = returned
	m.ids = append(m.ids, operation)
	if len(m.ids) > maxUnkept {
		m.drop(m.ids[0])
	}
}

// take returns what is remembered of an operation, and forgets it.
func (m *memory) take(operation string) (map[int]store.Step, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	returned, ok := m.returned[operation]
	m.drop(operation)
	return returned, ok
}

func (m *memory) drop(operation string) {
	if _, ok := m.returned[operation]; ok {
		delete(m.returned, operation)
		m.ids = slices.DeleteFunc(m.ids, func(id string) bool { return id == operation })
	}
}

// keep puts on record what calls have returned since the last commit, and nothing else of the run. It reports whether that was needed,
// and done. The run is over, and its transaction closed. The commit is made whatever this run knows of a cancellation.
func (w *work) keep(c commit) bool {
	learned := w.learned()
	if len(learned) == 0 || w.instance == nil {
		w.hide()
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), keepLimit)
	defer cancel()
	c.always = true
	c.at = w.remaining(learned, c.at)
	for pause := txn.RetryPause; ; {
		op := &Op{work: w, ctx: ctx, cancel: func(error) {}, pending: learned}
		if op.commit(c) == nil {
			unkept.take(w.operation)
			return true
		}
		op.close(nil)
		if op.stopped.why != again || txn.Sleep(ctx, pause.Next()) != nil {
			w.hide()
			return false
		}
	}
}

// learned returns what calls have returned that is not on record, in their order.
func (w *work) learned() []store.RecordStep {
	var learned []store.RecordStep
	for seq, s := range w.returned {
		if begun, ok := w.recorded[seq]; ok && begun.Name == s.Name && begun.Kind == s.Kind && isOpen(begun.Outcome) {
			learned = append(learned, store.RecordStep{OperationID: w.operation, Step: s})
		}
	}
	slices.SortFunc(learned, func(a, b store.RecordStep) int { return cmp.Compare(a.Step.Seq, b.Step.Seq) })
	return learned
}

// remaining returns where the operation is when these calls have ended: at one that was begun together with them and has not, if there
// is one.
func (w *work) remaining(learned []store.RecordStep, at store.At) store.At {
	for seq := 1; seq <= len(w.recorded); seq++ {
		s := w.recorded[seq]
		ended := slices.ContainsFunc(learned, func(r store.RecordStep) bool { return r.Step.Seq == seq })
		if s.Outcome == store.StepBegun && !ended {
			at.Kind, at.Step, at.Seq = s.Kind, s.Name, s.Seq
			return at
		}
	}
	return at
}

// isOpen reports whether what is on record of a call, or of an undo, leaves open what has come of it.
func isOpen(o store.StepOutcome) bool { return o == store.StepBegun || o == store.StepRegistered }

// hide keeps in the memory of the process what could not be put on record.
func (w *work) hide() {
	if len(w.returned) > 0 {
		unkept.put(w.operation, w.returned)
	}
}

// recall brings back what hide has kept.
func (w *work) recall() {
	w.returned = map[int]store.Step{}
	if known, ok := unkept.take(w.operation); ok {
		w.returned = known
	}
}

// begun returns the call, or the undo, that was begun and has no end on record.
func (w *work) begun() (store.Step, bool) {
	s, ok := w.recorded[w.at.Seq]
	if ok && w.at.Seq > 0 && isOpen(s.Outcome) && (s.Kind == store.CallStep || s.Kind == store.UndoStep) {
		return s, true
	}
	for seq := 1; seq <= len(w.recorded); seq++ {
		if s := w.recorded[seq]; s.Outcome == store.StepBegun {
			return s, true
		}
	}
	return store.Step{}, false
}
