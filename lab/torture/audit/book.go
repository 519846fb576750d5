// Package audit decides whether a run of the torture kept every promise of package operation. It
// reads the events that the workers logged, the books of the simulated bank, and the final state of
// the database. It shares no code with the library.
package audit

import (
	"cmp"
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/lab/torture/fault"
	"github.com/idem-go/idem/lab/torture/history"
	"github.com/idem-go/idem/lab/torture/journal"
	"github.com/idem-go/idem/lab/torture/ledger"
	"github.com/idem-go/idem/lab/torture/rule"
)

// Options are the facts about a run that neither its events nor its final state contain.
type Options struct {
	Seed  uint64
	Start time.Duration // when the run began; times are printed relative to it
	// Calm is when the calm period before Stop began. Its only injected fault is the loss of
	// answers to claims.
	Calm time.Duration
	// Stop is the time at which the workers were asked to end.
	Stop   time.Duration
	Faults []fault.Event
}

// book collects everything that is known of a run.
type book struct {
	options    Options
	operations map[string]*operation
	records    []*journal.Record
	calls      map[history.Op]*call
	alive      map[uint32]time.Duration // time of the last event, by process
	begun      map[uint32]time.Duration // begin of the latest run of a function, by process
	passages   passages
	found      []rule.Violation
}

// operation collects everything that is known of one operation.
type operation struct {
	id      string
	row     *journal.Operation // nil if the database has no row
	plan    journal.Plan
	known   [journal.Releases]map[string]int // number of undos of each step, by release of the code and name of the step
	steps   []*journal.Step
	signals []*journal.Signal
	effects map[string][]*journal.Effect // rows that steps wrote to Postgres, by step
	booked  map[string][]journal.Entry   // bookings at the bank, by step
	entries []journal.Entry              // all requests to the bank, whether booked or not
	moves   []*journal.Move
	heard   []journal.Event // answers of the bank
	unsent  []journal.Event
	saw     []journal.Event
	acked   map[string]int64 // time of the acknowledgement of a signal, by name of the signal
	runs    []run
	answers []journal.Event
	started []journal.Event // return events of Start
	parked  []history.Op    // calls that returned a ParkedError
	record  *journal.Record // the row of idem.records with the id of the operation

	children []*operation
}

// run is one run of the function of an operation.
type run struct {
	op         history.Op
	begin, end time.Duration // end is 0 if the run has no end event
	pooled     bool
	by         history.Op // the call that began the run; 0 if a Worker did
	left       bool       // the context of the run had ended
	failed     bool       // the function failed or panicked
}

// call is a call of Do or Start.
type call struct {
	key    string
	waited time.Duration // when the call began to wait for its key; 0 if it did not wait
}

// Run checks all promises for one run. It gets the final state of the database, the books of the
// bank, and the events of the workers.
func Run(state *journal.State, books []journal.Entry, events []journal.Event, options Options) *rule.Result {
	b := &book{
		options: options, operations: map[string]*operation{}, calls: map[history.Op]*call{},
		alive: map[uint32]time.Duration{}, begun: map[uint32]time.Duration{}, passages: passages{},
	}
	b.readState(state)
	for _, e := range books {
		o := b.of(e.Operation)
		o.entries = append(o.entries, e)
		if e.Booked {
			o.booked[e.Step] = append(o.booked[e.Step], e)
		}
	}
	result := &rule.Result{Keys: len(state.Operations)}
	for _, e := range events {
		b.read(e)
		if e.Kind == journal.KindCall {
			result.Calls++
		}
	}
	for _, o := range b.operations {
		b.audit(o)
		if steps := b.accept(o); steps > 0 {
			result.Histories++
			result.Steps += steps
		}
	}
	b.checkKeys()
	b.checkAnew()
	b.checkAwaited()
	b.checkWoken()
	result.Violations = b.found
	return result
}

// of returns the operation with the id, and creates it if necessary.
func (b *book) of(id string) *operation {
	o := b.operations[id]
	if o == nil {
		o = &operation{id: id, effects: map[string][]*journal.Effect{}, booked: map[string][]journal.Entry{}, acked: map[string]int64{}}
		b.operations[id] = o
	}
	return o
}

func (b *book) readState(state *journal.State) {
	for _, row := range state.Operations {
		o := b.of(row.ID)
		o.row, o.plan = row, journal.PlanOf(b.options.Seed, cmp.Or(row.Plan, row.Key))
		for release := range o.known {
			o.known[release] = o.plan.Steps(release)
		}
		if row.Parent != "" {
			b.of(row.Parent).children = append(b.of(row.Parent).children, o)
		}
	}
	for _, s := range state.Steps {
		o := b.of(s.Operation)
		o.steps = append(o.steps, s)
	}
	for _, s := range state.Signals {
		o := b.of(s.Operation)
		o.signals = append(o.signals, s)
	}
	for _, e := range state.Effects {
		o := b.of(e.Operation)
		o.effects[e.Step] = append(o.effects[e.Step], e)
	}
	for _, m := range state.Moves {
		o := b.of(m.Operation)
		o.moves = append(o.moves, m)
	}
	for _, r := range state.Records {
		b.of(r.ID).record = r
	}
	b.records = state.Records
}

func (b *book) read(e journal.Event) {
	b.alive[e.Op.Process()] = max(b.alive[e.Op.Process()], e.At)
	switch e.Kind {
	case journal.KindCall:
		b.calls[e.Op] = &call{key: e.Key}
	case journal.KindWait:
		if c := b.calls[e.Op]; c != nil && c.waited == 0 {
			c.waited = e.At
		}
	case journal.KindDie:
		b.options.Faults = append(b.options.Faults, fault.Event{At: e.At, Worker: e.Op.Slot()})
	}
	if e.Operation == "" {
		return
	}
	o := b.of(e.Operation)
	switch e.Kind {
	case journal.KindReturn:
		if e.Answer != nil {
			o.answers = append(o.answers, e)
		}
		if e.Parked {
			o.parked = append(o.parked, e.Op)
		}
		if e.Verb == journal.Start {
			o.started = append(o.started, e)
		}
	case journal.KindBegin:
		b.begun[e.Op.Process()] = max(b.begun[e.Op.Process()], e.At)
		o.runs = append(o.runs, run{op: e.Op, begin: e.At, pooled: e.Pooled, by: e.By})
	case journal.KindEnd:
		o.ended(e)
	case journal.KindSignal:
		if known := o.acked[e.Name]; known == 0 || e.Wall < known {
			o.acked[e.Name] = e.Wall
		}
	case journal.KindHeard:
		o.heard = append(o.heard, e)
	case journal.KindUnsent:
		o.unsent = append(o.unsent, e)
	case journal.KindSaw:
		o.saw = append(o.saw, e)
	}
}

func (o *operation) ended(e journal.Event) {
	for i := range o.runs {
		if o.runs[i].op == e.Op {
			o.runs[i].end, o.runs[i].left, o.runs[i].failed = e.At, e.Left, e.Failed
		}
	}
}

// Take reads the state of the database in one snapshot.
func Take(ctx context.Context, conn *pgx.Conn) (*journal.State, error) {
	s := &journal.State{}
	err := ledger.Snapshot(ctx, conn,
		ledger.Into(&s.Operations, operations),
		ledger.Into(&s.Steps, steps, ledger.Offset()),
		ledger.Into(&s.Signals, `SELECT operation_id::text, name, convert_from(value, 'UTF8') FROM idem.signals`),
		ledger.Into(&s.Effects, `SELECT operation_id::text, step, nonce, at, given FROM torture.steps`),
		ledger.Into(&s.Moves, moves, ledger.Offset()),
		ledger.Into(&s.Records, `SELECT execution_id::text, key, state, body FROM idem.records`),
	)
	for _, r := range s.Records {
		if err := json.Unmarshal(r.Body, &r.Answer); err != nil {
			r.Answer = nil
		}
	}
	return s, err
}

const operations = `SELECT id::text, key, coalesce(convert_from(input, 'UTF8')::jsonb->>'Key', key), coalesce(parent::text, ''), state, step,
	coalesce(reason, ''), coalesce(reason_step, ''), coalesce(reason_text, ''), coalesce(error_step || ': ' || convert_from(error_text, 'UTF8'), ''),
	undoing, canceled, coalesce(without_code, false) FROM idem.operations`

var steps = `SELECT operation_id::text, kind, CASE kind WHEN 'undo' THEN 'undo ' ELSE '' END || name, outcome, coalesce(undos, 0),
	coalesce(convert_from(value, 'UTF8'), ''), coalesce((extract(epoch FROM due_at) * 1000000)::int8, 0), ` + ledger.Clock("recorded_at") + `
	FROM idem.steps ORDER BY operation_id, seq`

// moves selects the changes of operations that a trigger has logged. The trigger runs while its
// transaction has the row of the operation locked, so the numbers in the column place have the
// order of the commits.
var moves = `SELECT operation_id::text, (row->>'epoch')::int, (row->>'attempts')::int, coalesce((row->>'owner')::int, 0), row->>'state',
	coalesce(row->>'reason', ''), coalesce(row->>'reason_step', ''), row->>'kind', row->>'step', (row->>'canceled')::bool,
	coalesce((row->>'without_calling')::bool, false), coalesce((row->>'without_code')::bool, false),
	(row->>'wake_at')::timestamptz > moved_at + interval '1 year', coalesce((row->>'deaths')::int, 0),
	CASE WHEN (row->>'deaths')::int >= 3 THEN greatest(0, extract(epoch FROM (row->>'wake_at')::timestamptz - moved_at) * 1000000000)::int8 ELSE 0 END, ` +
	ledger.Clock("(row->>'since')::timestamptz") + ", " + ledger.Clock("moved_at") + `,
	coalesce(nullif(regexp_replace(by, '^torture (direct|pooled) ', ''), by), '4294967295')::int8, starts_with(by, 'torture pooled '), known
	FROM torture.moves ORDER BY place`
