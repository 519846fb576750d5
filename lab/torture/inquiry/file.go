package inquiry

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/idem-go/idem/lab/torture/check"
	"github.com/idem-go/idem/lab/torture/history"
	"github.com/idem-go/idem/lab/torture/letter"
	"github.com/idem-go/idem/lab/torture/rule"
)

// Options are the facts about a run that are not in its files.
type Options struct {
	Start time.Duration // of the run; times are printed relative to it
	// Quiet reports that nothing was broken before Until, so that no letter may be late.
	Quiet bool
	Until time.Duration
	// Direct reports that there was no broker. A letter counts as published when it has its effect.
	Direct bool
}

// BooksFile is the name of the file with the books of the broker.
const BooksFile = "broker.jsonl"

// file collects everything that is known of a run.
type file struct {
	options Options
	letters map[string]*known // by id
	events  []letter.Event
	taken   []letter.Entry // by the broker, in order
	effects []letter.Effect
	found   []check.Violation
}

// known collects everything that is known of a letter.
type known struct {
	said     []letter.Letter // committed to the outbox; one entry
	taken    []letter.Entry
	refusals int
	waiting  int
	effects  map[string]int          // by consumer
	inbox    map[string]bool         // by consumer
	dead     map[string]*letter.Dead // by consumer; "" for the outbox
	causes   int                     // number of letters that answer it
}

// Files checks a run from its files in dir. It returns an error if a file cannot be read.
func Files(dir string, options Options) (*check.Result, error) {
	begin := time.Now()
	f := &file{options: options, letters: map[string]*known{}}
	tally := check.Tally{ByVerb: map[string]map[history.Outcome]int{}}
	if err := history.Lines(filepath.Join(dir, "state.jsonl"), f.readRow); err != nil {
		return nil, err
	}
	if err := history.Lines(filepath.Join(dir, BooksFile), f.readEntry); err != nil {
		return nil, err
	}
	workers, err := filepath.Glob(filepath.Join(dir, "worker-*.jsonl"))
	if err != nil {
		return nil, err
	}
	for _, path := range workers {
		if err := history.Lines(path, func(line []byte) error { return f.readEvent(line, &tally) }); err != nil {
			return nil, err
		}
	}
	f.tellOutcomes(&tally)
	if options.Direct {
		f.takeEffects()
	}
	for id, k := range f.letters {
		f.checkPublished(id, k)
		f.checkEffects(id, k)
	}
	f.checkOrder()
	f.checkTold()
	if options.Quiet {
		f.checkLate()
	}
	return &check.Result{Violations: f.found, Keys: len(f.letters), Tally: tally, Took: time.Since(begin)}, nil
}

func (f *file) of(id string) *known {
	k := f.letters[id]
	if k == nil {
		k = &known{effects: map[string]int{}, inbox: map[string]bool{}, dead: map[string]*letter.Dead{}}
		f.letters[id] = k
	}
	return k
}

func (f *file) readRow(line []byte) error {
	row, err := history.Decode[letter.Row](line)
	switch {
	case err != nil:
		return err
	case row.Said != nil:
		k := f.of(row.Said.Letter.ID)
		k.said = append(k.said, row.Said.Letter)
		if cause := row.Said.Letter.Cause; cause != "" {
			f.of(cause).causes++
		}
	case row.Effect != nil:
		f.of(row.Effect.ID).effects[row.Effect.Consumer]++
		f.effects = append(f.effects, *row.Effect)
	case row.Waiting != nil:
		f.of(row.Waiting.ID).waiting++
	case row.Dead != nil:
		f.of(row.Dead.ID).dead[row.Dead.Consumer] = row.Dead
	case row.Inbox != nil:
		f.of(row.Inbox.ID).inbox[row.Inbox.Consumer] = true
	case row.Finding != nil:
		f.found = append(f.found, check.Violation{Rule: rule.Rule(row.Finding.Rule), Detail: row.Finding.Detail})
	}
	return nil
}

func (f *file) readEntry(line []byte) error {
	e, err := history.Decode[letter.Entry](line)
	k := f.of(e.Letter.ID)
	switch {
	case err != nil || e.Acked != "":
	case e.Taken:
		k.taken = append(k.taken, e)
		f.taken = append(f.taken, e)
	default:
		k.refusals++
	}
	return err
}

func (f *file) readEvent(line []byte, tally *check.Tally) error {
	e, err := history.Decode[letter.Event](line)
	switch e.Kind {
	case letter.KindExit:
		tally.Exits++
		tally.Memory = max(tally.Memory, e.Bytes)
	case letter.KindRun:
		tally.Runs += e.Letters
	default:
		f.events = append(f.events, e)
	}
	return err
}

// tellOutcomes counts the outcomes that workers got, for each letter.
func (f *file) tellOutcomes(tally *check.Tally) {
	open := map[history.Op]letter.Event{}
	count := func(e *letter.Event, outcome history.Outcome, n int) {
		if tally.ByVerb[e.Verb] == nil {
			tally.ByVerb[e.Verb] = map[history.Outcome]int{}
		}
		tally.ByVerb[e.Verb][outcome] += n
		tally.Operations += n
	}
	for _, e := range f.events {
		if e.Kind == letter.KindSay || e.Kind == letter.KindHandle {
			open[e.Op] = e
		}
	}
	for _, e := range f.events {
		switch begun := open[e.Op]; {
		case e.Kind != letter.KindSaid && e.Kind != letter.KindTold:
		case len(e.Answers) == 0:
			count(&begun, e.Outcome, begun.Letters)
			delete(open, e.Op)
		default:
			for _, a := range e.Answers {
				count(&begun, a.Outcome, 1)
			}
			delete(open, e.Op)
		}
	}
	for _, e := range open {
		count(&e, history.Open, e.Letters)
	}
}

func (f *file) violates(r rule.Rule, id string, format string, args ...any) {
	v := check.Violation{Rule: r, Scope: "message " + id, Detail: fmt.Sprintf(format, args...)}
	if k := f.letters[id]; k != nil && len(k.said) > 0 {
		l := k.said[0]
		v.Key = fmt.Sprintf("%s %q, number %d, %s", l.Topic, l.Key, l.N, fate(l.Fate))
	}
	f.found = append(f.found, v)
}

func fate(of letter.Fate) string {
	if of == letter.Plain {
		return "plain"
	}
	return string(of)
}
