package command

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/cmd/idem/internal/page"
	"github.com/idem-go/idem/cmd/idem/internal/record"
	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/internal/deadletter"
	"github.com/idem-go/idem/internal/txn"
	"github.com/idem-go/idem/outbox"
)

// chosenLetters selects the dead letters of a change: one by its ID, or many by filters.
type chosenLetters struct {
	ID  string `arg:"" optional:"" help:"Id of the message: idem dead list tells it."`
	All bool   `help:"Instead of an id: all that the filters let through, up to --limit."`
	letterFilter
	moreFilter
	Limit  int  `default:"1000" help:"With --all, how many at most, up to 10000. Default: ${default}."`
	DryRun bool `help:"Say what would be done, and do nothing."`
	accountable
}

// choose returns the selected letters. It fails if none is selected, or if the arguments contradict
// each other.
func (c *chosenLetters) choose(s *session) ([]record.Letter, error) {
	filtered := c.letterFilter != letterFilter{} || c.moreFilter != moreFilter{}
	switch {
	case (c.ID == "") != c.All:
		return nil, usage("say either an id or --all")
	case c.All && !filtered:
		return nil, usage("--all wants a filter: --side, --consumer, --source, --class or --older")
	case c.Limit < 1 || c.Limit > 10000:
		return nil, usage("--limit is between 1 and 10000: do it again for more")
	}
	if !c.All {
		one, err := c.find(s, c.ID, false)
		if err != nil {
			return nil, err
		}
		return []record.Letter{*one}, nil
	}
	filter := c.of("")
	filter.Class, filter.Older, filter.Limit = c.Class, time.Duration(c.Older), c.Limit
	found, err := letters(s, filter)
	if err == nil && len(found) == 0 {
		err = noRecordError{"there is no such dead letter: idem dead list has those that there are"}
	}
	return found, err
}

// change asks for consent and calls do for each letter until one fails. A letter that has changed
// in the meantime is skipped. The text verb completes a question, and done describes the result.
func (c *chosenLetters) change(s *session, found []record.Letter, verb, done string, do func(ctx context.Context, l *record.Letter) (bool, error)) error {
	will := fmt.Sprintf("%s %d dead letters", verb, len(found))
	if len(found) == 1 {
		will = fmt.Sprintf("%s the dead letter %s, dead for %s", verb, letterName(&found[0]), page.Age(found[0].Now.Sub(found[0].DiedAt)))
	}
	if c.DryRun {
		return s.show(shownLetterChange{Letters: newShownLetters(found, false)}, func(p *page.Page) {
			p.Printf("it %s\n\n", will)
			tellLetters(p, found, false)
		})
	}
	if err := c.ask(s, will); err != nil {
		return err
	}
	ctx := c.onRecord(s)
	changed, err := []record.Letter{}, error(nil)
	for i := range found {
		var ok bool
		if ok, err = doOne(ctx, &found[i], do); err != nil {
			break
		}
		if ok {
			changed = append(changed, found[i])
		}
		s.progress("%d of %d", i+1, len(found))
	}
	s.progress("")
	if err != nil {
		if len(changed) > 0 {
			err = fmt.Errorf("%w; before that, %d of %d were %s", err, len(changed), len(found), done)
		}
		return err
	}
	if len(changed) == 0 {
		return noRecordError{"they were changed meanwhile: nothing was done"}
	}
	return s.show(shownLetterChange{Done: true, Letters: newShownLetters(changed, false)}, func(p *page.Page) { p.Printf("%d %s\n", len(changed), done) })
}

// doOne calls do for one letter, with a timeout. It names the letter if the outcome of the COMMIT
// is unknown.
func doOne(ctx context.Context, l *record.Letter, do func(context.Context, *record.Letter) (bool, error)) (bool, error) {
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	bounded, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	ok, err := do(bounded, l)
	if errors.As(err, new(*txn.UnknownError)) {
		err = record.ErrUnknown
	}
	if errors.Is(err, record.ErrUnknown) {
		err = fmt.Errorf("%w for the dead letter %s: idem dead show tells", err, letterName(l))
	}
	return ok, err
}

// shownLetterChange is the JSON of the letters that were changed or, with --dry-run, would be.
type shownLetterChange struct {
	Done    bool          `json:"done"`
	Letters []shownLetter `json:"dead_letters"`
}

type deadRedriveCommand struct {
	chosenLetters
	sealKeys
}

// Help implements kong.HelpProvider.
func (deadRedriveCommand) Help() string {
	return `For dead letters whose cause is gone. One of the outbox is given to it again, under the same id, as the last of its key; it is opened for
that, which takes the keys if it is sealed. One of the inbox is handled by the program that consumes (inbox.RunRedrives) or when a broker
delivers it again, and stays on the list until then.

Example: idem dead redrive --all --side inbox --consumer billing --class 40001 --dry-run`
}

// Run redrives the selected letters.
func (c *deadRedriveCommand) Run(s *session) error {
	found, err := c.choose(s)
	if err != nil {
		return err
	}
	for i := range found { // check for missing keys before the first change
		if l := &found[i]; l.Side == deadletter.Outbox {
			if _, err := c.sealerOf(s, l); err != nil {
				return err
			}
		}
	}
	return c.change(s, found, "tries again", "to be tried again", func(ctx context.Context, l *record.Letter) (bool, error) {
		err := c.redrive(ctx, s, l)
		if errors.Is(err, outbox.ErrNoDeadLetter) || errors.Is(err, inbox.ErrNoDeadLetter) {
			return false, nil
		}
		return err == nil, err
	})
}

// redrive redrives one letter. A sealed letter of the outbox is opened for this, because its
// payload goes back to the outbox.
func (c *deadRedriveCommand) redrive(ctx context.Context, s *session, l *record.Letter) error {
	if l.Side == deadletter.Inbox {
		return inbox.Redrive(ctx, s.pool, inbox.Ref{Consumer: l.Consumer, Source: l.Source, ID: l.ID})
	}
	sealer, err := c.sealerOf(s, l)
	var opts []outbox.DeadLetterOption
	switch {
	case err != nil:
		return err
	case sealer != nil:
		opts = append(opts, outbox.WithSealer(sealer))
	}
	return outbox.Redrive(ctx, s.pool, outbox.Ref{Topic: l.Source, ID: l.ID}, opts...)
}

type deadDropCommand struct{ chosenLetters }

// Help implements kong.HelpProvider.
func (deadDropCommand) Help() string {
	return `For dead letters that are not wanted any more. What they say is gone for good. One that has died again since it was listed is left alone.

Example: idem dead drop 0193c1a0-5a9e-7bbd-8e01-3f1f5f3b2a10 --side outbox --dry-run`
}

// Run deletes the selected letters.
func (c *deadDropCommand) Run(s *session) error {
	found, err := c.choose(s)
	if err != nil {
		return err
	}
	return c.change(s, found, "deletes for good", "deleted", func(ctx context.Context, l *record.Letter) (gone bool, err error) {
		err = record.Change(ctx, s.pool, changeTimeout, func(tx pgx.Tx) (err error) {
			gone, err = record.DropLetter(ctx, tx, l)
			return err
		})
		return gone, err
	})
}
