package audit

import (
	"cmp"
	"path/filepath"
	"time"

	"github.com/idem-go/idem/lab/torture/check"
	"github.com/idem-go/idem/lab/torture/history"
	"github.com/idem-go/idem/lab/torture/journal"
	"github.com/idem-go/idem/lab/torture/rule"
)

// Options are the facts about a run that are not in its files.
type Options struct {
	Seed  uint64
	Start time.Duration // of the run; times are printed relative to it
	// Calm is the time after which nothing was broken and no process was killed.
	Calm time.Duration
	// Stop is the time at which the workers were asked to end.
	Stop time.Duration
	// Faults are the times at which one worker, or all of them, were affected by a fault.
	Faults []Fault
}

// Fault is a period in which a fault affected a worker.
type Fault struct {
	At, Until time.Duration
	Slot      int // -1 for all workers
}

// book collects everything that is known of a run.
type book struct {
	options    Options
	operations map[string]*operation
	events     []journal.Event
	records    []*journal.Record
	calls      map[history.Op]*call
	alive      map[uint32]time.Duration // by process: its last event
	begun      map[uint32]time.Duration // by process: when it last began a run of a function
	found      []check.Violation
}

// operation collects everything that is known of one operation.
type operation struct {
	id      string
	row     *journal.Operation // nil if the database has no row
	plan    journal.Plan
	steps   []*journal.Step
	signals []*journal.Signal
	effects map[string][]*journal.Effect // in Postgres, by step
	booked  map[string][]journal.Entry   // at the bank, by step
	asked   int                          // the number of requests to the bank
	entries []journal.Entry              // all requests to the bank, booked or not
	moves   []*journal.Move
	heard   []journal.Event // answers of the bank
	unsent  []journal.Event
	saw     []journal.Event
	acked   map[string]int64 // when the sender of a signal got its acknowledgement, by name
	runs    []run
	answers []journal.Event
	parked  []history.Op    // calls that returned "parked"
	record  *journal.Record // the record with the id of the operation

	children []*operation
}

// run is one run of the function of an operation.
type run struct {
	op         history.Op
	begin, end time.Duration // end is 0 if the run has no end event
	pooled     bool
	by         history.Op // the call that began the run, 0 for a Worker
	release    int        // of the code
	left       bool       // its context had ended
	failed     bool       // the function failed or panicked
}

// call is a call of Do or Start.
type call struct {
	key    string
	waited time.Duration // when it began to wait for its key, 0 if it did not wait
}

// Files audits a run from its files in dir: the state of the database, the books of the bank, and
// the histories of the workers. It returns an error if a file cannot be read. A broken promise is a
// violation in the result.
func Files(dir string, options Options) (*check.Result, error) {
	begin := time.Now()
	b := &book{options: options, operations: map[string]*operation{}, calls: map[history.Op]*call{}, alive: map[uint32]time.Duration{}, begun: map[uint32]time.Duration{}}
	tally := check.Tally{ByVerb: map[string]map[history.Outcome]int{}}
	if err := b.readState(filepath.Join(dir, "state.jsonl")); err != nil {
		return nil, err
	}
	if err := b.readBank(filepath.Join(dir, BooksFile)); err != nil {
		return nil, err
	}
	workers, err := filepath.Glob(filepath.Join(dir, "worker-*.jsonl"))
	if err != nil {
		return nil, err
	}
	for _, path := range workers {
		if err := b.readWorker(path, &tally); err != nil {
			return nil, err
		}
	}
	b.tellOutcomes(&tally)
	keys := map[string]bool{}
	for _, o := range b.operations {
		if o.row != nil {
			keys[o.row.Key] = true
		}
		b.audit(o)
	}
	b.checkKeys()
	b.checkAnew()
	b.checkAwaited()
	b.checkWoken()
	return &check.Result{Violations: b.found, Keys: len(keys), Tally: tally, Took: time.Since(begin)}, nil
}

// BooksFile is the name of the file with the books of the bank.
const BooksFile = "bank.jsonl"

// of returns the operation with the id, and creates it if necessary.
func (b *book) of(id string) *operation {
	o := b.operations[id]
	if o == nil {
		o = &operation{id: id, effects: map[string][]*journal.Effect{}, booked: map[string][]journal.Entry{}, acked: map[string]int64{}}
		b.operations[id] = o
	}
	return o
}

// readState reads the rows that Take wrote.
func (b *book) readState(path string) error {
	return history.Lines(path, func(line []byte) error {
		row, err := history.Decode[journal.Row](line)
		switch {
		case err != nil:
			return err
		case row.Operation != nil:
			o := b.of(row.Operation.ID)
			o.row, o.plan = row.Operation, journal.PlanOf(b.options.Seed, cmp.Or(row.Operation.Plan, row.Operation.Key))
			if parent := row.Operation.Parent; parent != "" {
				b.of(parent).children = append(b.of(parent).children, o)
			}
		case row.Step != nil:
			o := b.of(row.Step.Operation)
			o.steps = append(o.steps, row.Step)
		case row.Signal != nil:
			o := b.of(row.Signal.Operation)
			o.signals = append(o.signals, row.Signal)
		case row.Effect != nil:
			o := b.of(row.Effect.Operation)
			o.effects[row.Effect.Step] = append(o.effects[row.Effect.Step], row.Effect)
		case row.Move != nil:
			o := b.of(row.Move.Operation)
			o.moves = append(o.moves, row.Move)
		case row.Record != nil:
			b.records = append(b.records, row.Record)
			b.of(row.Record.ID).record = row.Record
		case row.Finding != nil:
			b.found = append(b.found, check.Violation{Rule: rule.Rule(row.Finding.Rule), Detail: row.Finding.Detail})
		}
		return nil
	})
}

// readBank reads the requests to the bank and its bookings.
func (b *book) readBank(path string) error {
	return history.Lines(path, func(line []byte) error {
		e, err := history.Decode[journal.Entry](line)
		o := b.of(e.Operation)
		o.asked++
		o.entries = append(o.entries, e)
		if e.Booked {
			o.booked[e.Step] = append(o.booked[e.Step], e)
		}
		return err
	})
}

// readWorker reads the events of one worker slot.
func (b *book) readWorker(path string, tally *check.Tally) error {
	return history.Lines(path, func(line []byte) error {
		e, err := history.Decode[journal.Event](line)
		b.alive[e.Op.Process()] = max(b.alive[e.Op.Process()], e.At)
		switch e.Kind {
		case journal.KindCall, journal.KindReturn:
			b.events = append(b.events, e)
			if e.Kind == journal.KindCall {
				b.calls[e.Op] = &call{key: e.Key}
			}
			if e.Answer != nil {
				o := b.of(e.Operation)
				o.answers = append(o.answers, e)
			}
			if e.Parked {
				o := b.of(e.Operation)
				o.parked = append(o.parked, e.Op)
			}
		case journal.KindBegin:
			tally.Runs++
			b.begun[e.Op.Process()] = max(b.begun[e.Op.Process()], e.At)
			o := b.of(e.Operation)
			o.runs = append(o.runs, run{op: e.Op, begin: e.At, pooled: e.Pooled, by: e.By, release: e.Release})
		case journal.KindEnd:
			b.of(e.Operation).ended(e)
		case journal.KindSignal:
			o := b.of(e.Operation)
			if known := o.acked[e.Name]; known == 0 || e.Wall < known {
				o.acked[e.Name] = e.Wall
			}
		case journal.KindWait:
			if c := b.calls[e.Op]; c != nil && c.waited == 0 {
				c.waited = e.At
			}
		case journal.KindHeard:
			o := b.of(e.Operation)
			o.heard = append(o.heard, e)
		case journal.KindUnsent:
			o := b.of(e.Operation)
			o.unsent = append(o.unsent, e)
		case journal.KindSaw:
			o := b.of(e.Operation)
			o.saw = append(o.saw, e)
		case journal.KindDie:
			b.options.Faults = append(b.options.Faults, Fault{At: e.At, Until: e.At, Slot: e.Op.Slot()})
		case journal.KindExit:
			tally.Exits++
			tally.Memory = max(tally.Memory, e.Bytes)
		}
		return err
	})
}

// ended records the end of a run.
func (o *operation) ended(e journal.Event) {
	for i := range o.runs {
		if o.runs[i].op == e.Op {
			o.runs[i].end, o.runs[i].left, o.runs[i].failed = e.At, e.Left, e.Failed
		}
	}
}

// tellOutcomes counts the outcomes that callers got. A call without a return event counts as open.
func (b *book) tellOutcomes(tally *check.Tally) {
	answered := map[history.Op]bool{}
	count := func(verb string, outcome history.Outcome) {
		if tally.ByVerb[verb] == nil {
			tally.ByVerb[verb] = map[history.Outcome]int{}
		}
		tally.ByVerb[verb][outcome]++
	}
	for _, e := range b.events {
		if e.Kind == journal.KindReturn {
			answered[e.Op] = true
			count(e.Verb, e.Outcome)
			if e.Rejected && e.Outcome == history.Executed {
				tally.Rejected++
			}
		}
	}
	for _, e := range b.events {
		if e.Kind == journal.KindCall {
			tally.Operations++
			if !answered[e.Op] {
				count(e.Verb, history.Open)
			}
		}
	}
	for _, o := range b.operations {
		if o.row != nil {
			count("operations, "+o.row.State, history.Executed)
		}
	}
}
