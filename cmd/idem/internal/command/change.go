package command

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/cmd/idem/internal/page"
	"github.com/idem-go/idem/cmd/idem/internal/record"
	"github.com/idem-go/idem/internal/txn"
)

// changeTimeout limits the time in which one object is changed.
const changeTimeout = 10 * time.Second

// batch has the flags of a command that changes either one object, given by its id, or with --all
// every object that the filters select.
type batch struct {
	ID     string `arg:"" optional:"" help:"Id, as the list prints it."`
	All    bool   `help:"All that the filters select, up to --limit, in place of an id."`
	Limit  int    `default:"1000" help:"With --all, the maximum number, up to 10000. Default: ${default}."`
	DryRun bool   `help:"Say what would be done, and do nothing."`
	auditFlags
}

// check fails if the flags contradict each other. --all needs a filter, so that a person cannot
// change everything by accident.
func (b *batch) check(filtered bool, filters string) error {
	switch {
	case (b.ID == "") != b.All:
		return usage("give either an id or --all")
	case b.All && !filtered:
		return usage("--all needs a filter: %s", filters)
	}
	return checkLimit(b.Limit)
}

// changeSpec says how objects are changed, and how the change is described. The commands retry,
// resolve, cancel, redrive, drop, evict and forget each pass a changeSpec to the function change.
type changeSpec[T any] struct {
	kind       string // what the objects are, in the plural, such as "dead letters"
	will, done string // verbs, such as "cancels" and "canceled"
	name       func(*T) string
	table      *table[T]
	preview    []string // sentences about what will happen
	do         func(context.Context, *T) error
}

// skippedError means that another process changed an object after it was read, so the command left
// it as it is.
type skippedError struct{ error }

// change asks for confirmation, and then changes each object until a change fails. It skips objects
// that have changed since they were read, and fails if it skipped all of them.
//
// Each object is changed in a transaction of its own. A single transaction would hold its locks for
// long, and one failure would roll back all changes. If a change fails, the earlier changes stay,
// so the error says how many objects were changed.
func change[T any](s *session, b *batch, found []T, c *changeSpec[T]) error {
	described := fmt.Sprintf("%d %s", len(found), c.kind)
	if len(found) == 1 {
		described = c.name(&found[0])
	}
	document := map[string]any{"done": !b.DryRun, strings.ReplaceAll(c.kind, " ", "_"): found}
	if len(c.preview) > 0 {
		document["preview"] = c.preview
	}
	if b.DryRun {
		return s.show(document, func(p *page.Page) {
			p.Printf("this %s %s\n\n", c.will, described)
			c.table.print(p, found)
			for _, sentence := range c.preview {
				p.Printf("%s\n", sentence)
			}
		})
	}
	s.preview(b.confirmFlag, c.preview)
	if err := b.ask(s, c.will+" "+described); err != nil {
		return err
	}
	ctx := b.withReason(s)
	changed := []T{}
	var skipped skippedError
	for i := range found {
		err := changeOne(ctx, &found[i], c)
		if err != nil && !errors.As(err, &skipped) {
			s.progress("")
			if len(changed) > 0 {
				err = fmt.Errorf("%w; before that, %d of %d were %s", err, len(changed), len(found), c.done)
			}
			return err
		}
		if err == nil {
			changed = append(changed, found[i])
		}
		s.progress("%d of %d", i+1, len(found))
	}
	s.progress("")
	if len(changed) == 0 {
		return skipped.error
	}
	document[strings.ReplaceAll(c.kind, " ", "_")] = changed
	return s.show(document, func(p *page.Page) {
		if len(found) > 1 {
			described = fmt.Sprintf("%d of %d %s", len(changed), len(found), c.kind)
		}
		p.Printf("%s %s\n", c.done, described)
	})
}

// changeOne changes one object, within changeTimeout. It fails if ctx is done, so that an interrupt
// stops the command between two objects.
func changeOne[T any](ctx context.Context, object *T, c *changeSpec[T]) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	bounded, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	err := c.do(bounded, object)
	if errors.As(err, new(*txn.UnknownError)) || errors.Is(err, record.ErrUnknown) {
		return fmt.Errorf("%w: look whether it %s %s", record.ErrUnknown, c.will, c.name(object))
	}
	return err
}

// preview prints what a change will do. If the command will ask for confirmation, it writes to
// standard error, above the question. Otherwise it writes to standard output, above the result. It
// writes nothing with --json, because the JSON document contains the preview.
func (s *session) preview(agreed confirmFlag, sentences []string) {
	p := s.page
	if !agreed.Yes && s.InIsTerminal {
		p = page.New(s.Stderr, false)
	} else if s.globals.JSON {
		return
	}
	for _, sentence := range sentences {
		p.Printf("%s\n", page.Wrap(sentence, "", 100))
	}
}

// confirmFlag has the flag --yes, with which a command does not ask for confirmation.
type confirmFlag struct {
	Yes bool `short:"y" help:"Do not ask for confirmation."`
}

// ask prints what the command will do, and waits for the answer. It returns nil if the person
// agrees or gave --yes, and an error otherwise. It also returns an error if there is no terminal,
// so a script must give --yes.
func (c confirmFlag) ask(s *session, will string) error {
	if c.Yes {
		return nil
	}
	if !s.InIsTerminal {
		return unchanged("nothing was changed: this %s; there is no terminal to ask at, so give --yes", will)
	}
	fmt.Fprintf(s.Stderr, "This %s.\nContinue? [y/N] ", will)
	answer, err := readLine(s.ctx, s)
	if !strings.HasSuffix(answer, "\n") { // the input ended before the end of the line
		fmt.Fprintln(s.Stderr)
	}
	if err != nil {
		return err
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return unchanged("nothing was changed")
}

// readLine returns a line of standard input, or the cause of ctx when ctx is done. A read from a
// terminal cannot be canceled, so the goroutine stays blocked until the program exits.
func readLine(ctx context.Context, s *session) (string, error) {
	line := make(chan string, 1)
	go func() {
		text, _ := bufio.NewReader(s.Stdin).ReadString('\n')
		line <- text
	}()
	select {
	case text := <-line:
		return text, nil
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// auditFlags has the flags of a command whose changes are recorded in the table idem.audit.
type auditFlags struct {
	Reason string `placeholder:"TEXT" help:"Reason of the change, which idem audit shows."`
	Person string `placeholder:"NAME" help:"Person who makes the change, in addition to the database role. Default: the variable IDEM_PERSON, or USER."`
	confirmFlag
}

// withReason returns a context that carries the person and the reason. The library writes both to
// idem.audit in the transaction of the change. Several people often share a database role, so the
// role alone does not say who made a change.
func (a *auditFlags) withReason(s *session) context.Context {
	person := cmp.Or(a.Person, s.Getenv("IDEM_PERSON"), s.Getenv("USER"))
	return idem.WithReason(idem.WithPerson(s.ctx, person), a.Reason)
}
