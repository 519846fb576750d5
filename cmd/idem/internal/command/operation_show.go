package command

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/cmd/idem/internal/page"
	"github.com/idem-go/idem/cmd/idem/internal/record"
	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/operation"
)

type operationShowCommand struct {
	operationID
	sealKeys
	fullFlag
	Reveal bool `help:"Show the input and the values of steps and signals. If they are sealed, this needs the keys."`
}

// timeline is an operation with its recorded steps and signals, and the JSON document of idem
// operation show.
type timeline struct {
	*record.Operation
	InDoubt []shownCall     `json:"in_doubt,omitempty"`
	Undos   []string        `json:"undos,omitempty"` // names of the steps whose undo is still to run, in this order
	Kept    []string        `json:"kept,omitempty"`  // names of the done steps that keep their effect
	Input   *record.Value   `json:"input"`
	Steps   []record.Step   `json:"steps"`
	Signals []record.Signal `json:"signals"`

	full   bool // show the keys of calls in full
	reveal bool
}

// shownCall is a call that has begun and has no recorded outcome.
type shownCall struct {
	Kind string `json:"kind"`
	Step string `json:"step"`
	Key  string `json:"call_key"`

	name string // for display
}

// Run shows an operation. It reads the operation and its steps in one transaction. The undos still to
// run are computed by package operation, from rows that it reads itself.
func (c *operationShowCommand) Run(s *session) error {
	t := timeline{full: c.Full, reveal: c.Reveal}
	sealer, err := c.sealer(s)
	if err != nil {
		return err
	}
	t.Operation, err = c.find(s, func(ctx context.Context, tx pgx.Tx, o *record.Operation) (err error) {
		t.Steps, t.Signals, err = record.Timeline(ctx, tx, o, c.Reveal)
		return err
	})
	if err != nil {
		return err
	}
	t.Input = &t.Operation.Input
	t.LastError.Open(t.ID, sealer)
	abridge(&t.Key, c.Full)
	for _, d := range record.CallsInDoubt(t.Operation, t.Steps) {
		step, _ := record.UndoOf(d.Name)
		call := shownCall{d.Kind, step, operation.CallKey(t.ID, d.Kind, d.Name), doubtName(&d)}
		abridge(&call.Key, c.Full)
		t.InDoubt = append(t.InDoubt, call)
	}
	if err := t.readUndos(s); err != nil {
		return err
	}
	if c.Reveal {
		if err := t.open(s, c.sealKeys, sealer); err != nil {
			return err
		}
	}
	return s.show(&t, t.text)
}

// readUndos reads which undos are still to run, and which done steps keep their effect. If the
// operation was purged meanwhile, both lists stay empty.
func (t *timeline) readUndos(s *session) error {
	ctx, cancel := context.WithTimeout(s.ctx, changeTimeout)
	defer cancel()
	status, err := operation.Show(ctx, s.pool, t.ID)
	if err != nil && !errors.Is(err, operation.ErrUnknownOperation) {
		return err
	}
	t.Undos, t.Kept = status.Undos, status.Kept
	return nil
}

// open decrypts the input and the values of steps and signals. The encryption binds each value to
// its operation, and to its step or signal. So decryption fails for a value that was copied from
// another place in the database.
func (t *timeline) open(s *session, keys sealKeys, sealer idem.Sealer) error {
	open := func(what string, v *record.Value, bound []byte) error {
		if _, err := keys.sealerFor(s, what, v.SealedBy); err != nil {
			return err
		}
		return notOpened(what, v.SealedBy, v.Open(sealer, bound))
	}
	if err := open("the input", t.Input, db.BoundInput(t.ID)); err != nil {
		return err
	}
	for i := range t.Steps {
		step := &t.Steps[i]
		bound := db.BoundStep(t.ID, &db.Step{
			Seq: step.Seq, Kind: db.StepKind(step.Kind), Name: step.Name, Outcome: db.StepOutcome(step.Outcome)})
		if err := open("step "+page.Safe(step.Name), &step.Value, bound); err != nil {
			return err
		}
	}
	for i := range t.Signals {
		signal := &t.Signals[i]
		if err := open("signal "+page.Safe(signal.Name), &signal.Value, db.BoundSignal(t.ID, signal.Name)); err != nil {
			return err
		}
	}
	return nil
}

// text prints the facts, a table of the steps, and for a parked operation what to do.
func (t *timeline) text(p *page.Page) {
	p.Pairs(t.facts(p))
	p.Printf("\n")
	(&table[record.Event]{
		"no step is recorded",
		page.Columns(">#", "AT", ">TOOK", "KIND", "STEP", "OUTCOME", "VALUE"),
		t.row,
	}).print(p, record.Events(t.Operation, t.Steps, t.Signals))
	if t.State == record.Parked {
		p.Printf("\n%s\n", page.Wrap(t.remedy(), "Note: ", 100))
	}
}

// row returns the table cells for an entry of the timeline.
func (t *timeline) row(p *page.Page, e *record.Event) []string {
	number, value, outcome := "", "", e.Outcome
	if e.Seq > 0 {
		number = strconv.Itoa(e.Seq)
	}
	switch {
	case t.reveal && e.Value.Stored != nil:
		value = shownText(&e.Value)
	case !t.reveal && e.Value.Bytes > 0:
		value = page.Bytes(e.Value.Bytes)
	}
	outcome = inMood(p, e.Mood, outcome)
	if e.DueAt != nil {
		outcome += ", due " + page.Relative(*e.DueAt, t.Now)
	}
	return []string{number, page.Time(e.At), page.Age(e.Took), e.Kind, page.Safe(e.Name), outcome, value}
}

// remedy returns what to do about a parked operation.
func (t *timeline) remedy() string {
	text := "docs/operations-reference.md says what to do about " + t.Reason + ". Then: idem operation retry " + t.ID + ", or cancel."
	if len(t.InDoubt) > 0 {
		text += " A call is in doubt: ask the other side by the key of the call, then: idem operation resolve " + t.ID +
			" --happened --value JSON, --not-happened, or --refused TEXT, and --reason TEXT."
	}
	return text
}

// facts returns everything that is known of an operation, apart from its steps. For a running
// operation it says whether a process executes it, or which child operation it waits for.
func (t *timeline) facts(p *page.Page) []page.Pair {
	facts := []page.Pair{
		{Name: "operation id", Value: t.ID},
		{Name: "name", Value: page.Safe(t.Name)},
		{Name: "scope", Value: page.Safe(t.Scope)},
		{Name: "key", Value: page.Safe(t.Key)},
		{Name: "state", Value: operationState(p, t.Operation)},
		{Name: "created", Value: p.TimeAndAge(t.CreatedAt, t.Now)},
	}
	add := func(name, value string) { facts = append(facts, page.Pair{Name: name, Value: value}) }
	if t.EndedAt != nil {
		add("ended", page.Time(*t.EndedAt)+p.Dim(" (after "+page.Age(t.EndedAt.Sub(t.CreatedAt))+")"))
	} else {
		add("at step", orDash(t.Step)+p.Dim(" (since "+page.Time(t.Since)+", "+page.Relative(t.Since, t.Now)+")"))
		add("attempts", fmt.Sprintf("%d since its last progress", t.Attempts))
	}
	for _, d := range t.InDoubt {
		add("call's key", page.Safe(d.Key)+p.Dim(" at the other side, of "+d.name))
	}
	if t.Parent != "" {
		add("parent", t.Parent)
	}
	awaited := ""
	for _, s := range t.Steps {
		if s.Child == "" {
			continue
		}
		add("child", s.Child+p.Dim(" of step "+page.Safe(s.Name)))
		if s.Outcome == string(db.StepWaiting) {
			awaited = s.Child
		}
	}
	switch {
	case t.State == record.Parked:
		add("reason", page.Safe(t.Reason))
		add("parked because", page.Safe(t.ReasonText))
	case t.State == record.Running && t.Attended:
		add("executed by", "a running process")
	case t.State == record.Running && awaited != "":
		add("waits for", p.Yellow("operation "+awaited)+", its child, to end")
	case t.State == record.Running:
		add("executed by", p.Yellow("no process")+"; due "+page.Relative(t.WakeAt, t.Now))
	}
	if t.LastError != nil {
		add("last error", page.Safe(t.LastError.Text)+p.Dim(" ("+attemptOf(t.Operation)+")"))
	}
	if len(t.Undos) > 0 {
		add("still to undo", shownSteps(t.Undos))
	}
	if len(t.Kept) > 0 {
		add("stays", shownSteps(t.Kept)+p.Dim(" (done, and not undone)"))
	}
	if t.Input.SealedBy != "" {
		add("sealed with", page.Safe(t.Input.SealedBy))
	}
	add("input", shownText(t.Input))
	return facts
}

// doubtName describes a call in doubt: the call of a step, or the call of the undo of a step.
func doubtName(d *record.CallInDoubt) string {
	if d.IsUndo() {
		return "the undo of step " + page.Safe(record.UndoName(d.Name))
	}
	return "step " + page.Safe(d.Name)
}

// shownText returns a value for display, or its size if it was not read or is not text.
func shownText(v *record.Value) string {
	switch {
	case v.Stored == nil:
		return hidden(v.Bytes)
	case !utf8.Valid(v.Stored):
		return fmt.Sprintf("%s that are not text: see --json", page.Bytes(int64(len(v.Stored))))
	}
	return page.Safe(string(v.Stored))
}
