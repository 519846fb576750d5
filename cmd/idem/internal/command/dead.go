package command

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/cmd/idem/internal/page"
	"github.com/idem-go/idem/cmd/idem/internal/record"
	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/deadletter"
	"github.com/idem-go/idem/outbox"
	"github.com/idem-go/idem/seal"
)

type deadCommand struct {
	List    deadListCommand    `cmd:"" help:"List dead letters, in the order of side, consumer, source and id."`
	Show    deadShowCommand    `cmd:"" help:"Show one dead letter."`
	Redrive deadRedriveCommand `cmd:"" help:"Retry dead letters."`
	Drop    deadDropCommand    `cmd:"" help:"Delete dead letters for good."`
}

// deadLetterFilter has the flags that identify a dead letter, or select several.
type deadLetterFilter struct {
	Side     string `enum:",outbox,inbox" default:"" placeholder:"SIDE" help:"outbox: could not be published. inbox: could not be handled."`
	Consumer string `placeholder:"NAME" help:"Of this consumer, on the side of the inbox."`
	Source   string `aliases:"topic" placeholder:"SOURCE" help:"Of this source. For the outbox this is the topic: --topic is the same."`
}

// deadLetterCriteria has further flags that select dead letters.
type deadLetterCriteria struct {
	Class string `placeholder:"CLASS" help:"With an error of this class."`
	Older span   `placeholder:"SPAN" help:"Dead for longer than this."`
}

// of returns a filter for the message id, or for all ids if id is empty.
func (f deadLetterFilter) of(id string) record.DeadLetterFilter {
	return record.DeadLetterFilter{Only: db.LetterName{Side: f.Side, Consumer: f.Consumer, Source: f.Source, ID: id}}
}

// find returns the dead letter with a message id. It fails if there is none, or more than one.
// Several dead letters may have one id, because two sources may use the same ids and a message may
// fail at two consumers.
func (f deadLetterFilter) find(s *session, id string, reveal bool) (*record.DeadLetter, error) {
	filter := f.of(id)
	filter.Limit, filter.Reveal = 2, reveal
	found, err := readDeadLetters(s, filter)
	switch {
	case err != nil:
		return nil, err
	case len(found) == 0:
		return nil, noRecord("there is no such dead letter %s: see idem dead list", page.Safe(id))
	case len(found) > 1:
		return nil, usage("there are several dead letters %s, such as %s and %s: choose one by --side, --consumer and --source",
			page.Safe(id), deadLetterName(found[0].LetterName), deadLetterName(found[1].LetterName))
	}
	return &found[0], nil
}

// readDeadLetters returns the dead letters that f selects.
func readDeadLetters(s *session, f record.DeadLetterFilter) ([]record.DeadLetter, error) {
	return queryTx(s, func(ctx context.Context, tx pgx.Tx) ([]record.DeadLetter, error) {
		return record.DeadLetters(ctx, tx, f)
	})
}

// deadLetterName names a dead letter in a message.
func deadLetterName(l db.LetterName) string {
	if l.Side == deadletter.Outbox {
		return fmt.Sprintf("%s of topic %s", page.Safe(l.ID), page.Safe(l.Source))
	}
	return fmt.Sprintf("%s of source %s at consumer %s", page.Safe(l.ID), page.Safe(l.Source), page.Safe(l.Consumer))
}

// deadLetterTable shows no error texts, because they may contain a part of the payload.
var deadLetterTable = table[record.DeadLetter]{
	"no dead letters",
	page.Columns("SIDE", "CONSUMER", "SOURCE", "ID", "KEY", ">DEAD FOR", ">ATTEMPTS", "CLASS", "NOTE"),
	func(_ *page.Page, l *record.DeadLetter) []string {
		note := ""
		if l.RedriveAt != nil {
			note = "to be retried"
		}
		return []string{l.Side, page.Safe(l.Consumer), page.Safe(l.Source), page.Safe(l.ID), page.Safe(l.Key),
			page.Age(l.Now.Sub(l.DiedAt)), fmt.Sprint(l.Attempts), page.Safe(l.Class), note}
	},
}

// redact abridges the keys unless whole is true. It also removes the reasons: a reason is the text
// of an error, which may contain a part of the payload. Only idem dead show prints the reason.
func redact(all []record.DeadLetter, whole bool) {
	for i := range all {
		abridge(&all[i].Key, whole)
		all[i].Reason = ""
	}
}

type deadListCommand struct {
	deadLetterFilter
	deadLetterCriteria
	limitFlag
	afterFlag
	fullFlag
}

// Run lists dead letters.
func (c *deadListCommand) Run(s *session) error {
	after, err := decodeMark(c.After, 4)
	if err != nil {
		return err
	}
	filter := c.of("")
	filter.Class, filter.Older = c.Class, time.Duration(c.Older)
	filter.After = db.LetterName{Side: after[0], Consumer: after[1], Source: after[2], ID: after[3]}
	mark := func(l *record.DeadLetter) string { return encodeMark(l.Side, l.Consumer, l.Source, l.ID) }
	return showList(s, c.Limit, "dead_letters", &deadLetterTable, mark, func(ctx context.Context, tx pgx.Tx, limit int) ([]record.DeadLetter, error) {
		filter.Limit = limit
		found, err := record.DeadLetters(ctx, tx, filter)
		redact(found, c.Full)
		return found, err
	})
}

type deadShowCommand struct {
	ID string `arg:"" help:"Id of the message, as idem dead list prints it."`
	deadLetterFilter
	sealKeys
	fullFlag
	Reveal bool `help:"Show payload and headers. If they are sealed, this needs the keys."`
}

// shownDeadLetter is the JSON document of idem dead show.
type shownDeadLetter struct {
	*record.DeadLetter
	Headers     map[string]string `json:"headers,omitempty"`
	Payload     []byte            `json:"payload,omitempty"`      // base64
	PayloadText *string           `json:"payload_text,omitempty"` // set if the payload is UTF-8
}

// Run shows a dead letter. With --reveal it also shows the headers and the payload.
func (c *deadShowCommand) Run(s *session) error {
	found, err := c.find(s, c.ID, c.Reveal)
	if err != nil {
		return err
	}
	abridge(&found.Key, c.Full)
	shown := shownDeadLetter{DeadLetter: found}
	if c.Reveal {
		sealer, err := c.sealerOf(s, found)
		if err == nil && sealer != nil {
			err = notOpened("the dead letter", found.SealedBy, found.Open(sealer))
		}
		if err != nil {
			return err
		}
		if shown.Headers, err = db.ReadHeaders(found.Headers); err != nil {
			return err
		}
		shown.Payload, shown.PayloadText = found.Payload, record.TextOf(found.Payload)
	}
	return s.show(shown, func(p *page.Page) { c.text(p, &shown) })
}

// sealerOf returns the Sealer that opens a dead letter, or nil if the dead letter is not
// sealed.
func (k sealKeys) sealerOf(s *session, l *record.DeadLetter) (*seal.Sealer, error) {
	return k.sealerFor(s, "the dead letter "+deadLetterName(l.LetterName), l.SealedBy)
}

// text prints the facts, and with --reveal headers and payload. A payload that is not UTF-8 could
// disturb the terminal, so only --json shows it.
func (c *deadShowCommand) text(p *page.Page, l *shownDeadLetter) {
	pairs := []page.Pair{{Name: "id", Value: page.Safe(l.ID)}, {Name: "side", Value: l.Side}}
	if l.Side == deadletter.Outbox {
		pairs = append(pairs, page.Pair{Name: "topic", Value: page.Safe(l.Source)})
	} else {
		pairs = append(pairs, page.Pair{Name: "consumer", Value: page.Safe(l.Consumer)}, page.Pair{Name: "source", Value: page.Safe(l.Source)})
	}
	pairs = append(pairs,
		page.Pair{Name: "key", Value: orDash(l.Key)},
		page.Pair{Name: "type", Value: orDash(l.Type)},
		page.Pair{Name: "added", Value: p.TimeAndAge(l.AddedAt, l.Now)},
		page.Pair{Name: "died", Value: p.TimeAndAge(l.DiedAt, l.Now)},
		page.Pair{Name: "attempts", Value: fmt.Sprint(l.Attempts)},
		page.Pair{Name: "class", Value: page.Safe(l.Class)},
		page.Pair{Name: "reason", Value: page.Safe(l.Reason)})
	if l.RedriveAt != nil {
		pairs = append(pairs, page.Pair{Name: "redriven", Value: page.Time(*l.RedriveAt)})
	}
	if l.SealedBy != "" {
		pairs = append(pairs, page.Pair{Name: "sealed with", Value: page.Safe(l.SealedBy)})
	}
	if !c.Reveal {
		p.Pairs(append(pairs, page.Pair{Name: "headers", Value: hidden(l.HeaderBytes)}, page.Pair{Name: "payload", Value: hidden(l.PayloadBytes)}))
		return
	}
	p.Pairs(pairs)
	p.Printf("\n")
	for _, name := range slices.Sorted(maps.Keys(l.Headers)) {
		p.Printf("%s: %s\n", p.Bold(page.Safe(name)), page.Safe(l.Headers[name]))
	}
	switch {
	case l.PayloadText != nil:
		p.Printf("\n%s\n", page.SafeLines(*l.PayloadText))
	case len(l.Payload) > 0:
		p.Printf("\n%s that are not text: see --json\n", page.Bytes(int64(len(l.Payload))))
	}
}

// orDash returns text for display, or "-" if it is empty.
func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return page.Safe(text)
}

// deadLetterSelection has the flags that select the dead letters to change.
type deadLetterSelection struct {
	batch
	deadLetterFilter
	deadLetterCriteria
}

// choose returns the selected dead letters. It fails if there are none. If an id is given, the
// flags of deadLetterFilter choose among the dead letters with that id.
func (c *deadLetterSelection) choose(s *session) ([]record.DeadLetter, error) {
	filtered := c.deadLetterFilter != deadLetterFilter{} || c.deadLetterCriteria != deadLetterCriteria{}
	if err := c.check(filtered, "--side, --consumer, --source, --class or --older"); err != nil {
		return nil, err
	}
	var found []record.DeadLetter
	if c.All {
		filter := c.of("")
		filter.Class, filter.Older, filter.Limit = c.Class, time.Duration(c.Older), c.Limit
		var err error
		if found, err = readDeadLetters(s, filter); err != nil {
			return nil, err
		}
		if len(found) == 0 {
			return nil, noRecord("the filters select no dead letter: see idem dead list")
		}
	} else {
		one, err := c.find(s, c.ID, false)
		if err != nil {
			return nil, err
		}
		found = []record.DeadLetter{*one}
	}
	redact(found, false)
	return found, nil
}

// change asks for confirmation and calls the function do for each dead letter. The parameters will
// and done are verbs that describe the change, as in changeSpec.
func (c *deadLetterSelection) change(
	s *session, found []record.DeadLetter, will, done string, do func(context.Context, *record.DeadLetter) error,
) error {
	return change(s, &c.batch, found, &changeSpec[record.DeadLetter]{
		kind: "dead letters", will: will, done: done, table: &deadLetterTable,
		name: func(l *record.DeadLetter) string {
			return fmt.Sprintf("the dead letter %s (dead for %s)", deadLetterName(l.LetterName), page.Age(l.Now.Sub(l.DiedAt)))
		},
		do: do,
	})
}

// errDeadLetterChanged means that a dead letter was redriven, dropped or dead-lettered again after
// it was read.
var errDeadLetterChanged = skippedError{noRecord("nothing was done: each dead letter has changed since it was read")}

type deadRedriveCommand struct {
	deadLetterSelection
	sealKeys
}

// Run redrives the selected dead letters.
func (c *deadRedriveCommand) Run(s *session) error {
	found, err := c.choose(s)
	if err != nil {
		return err
	}
	// If a seal key is missing, the command must fail before it changes the first dead letter.
	for i := range found {
		if l := &found[i]; l.Side == deadletter.Outbox {
			if _, err := c.sealerOf(s, l); err != nil {
				return err
			}
		}
	}
	return c.change(s, found, "redrives", "redriven:", func(ctx context.Context, l *record.DeadLetter) error {
		err := c.redrive(ctx, s, l)
		if errors.Is(err, outbox.ErrNoDeadLetter) || errors.Is(err, inbox.ErrNoDeadLetter) {
			return errDeadLetterChanged
		}
		return err
	})
}

// redrive redrives a dead letter of the inbox or of the outbox. A dead letter of the inbox is only
// marked as due again, and its consumer decrypts it. A dead letter of the outbox is inserted into
// the outbox again. The outbox stores messages unencrypted, so redrive must decrypt a sealed dead
// letter.
func (c *deadRedriveCommand) redrive(ctx context.Context, s *session, l *record.DeadLetter) error {
	if l.Side == deadletter.Inbox {
		return inbox.Redrive(ctx, s.pool, inbox.Ref{Consumer: l.Consumer, Source: l.Source, ID: l.ID})
	}
	sealer, err := c.sealerOf(s, l)
	if err != nil {
		return err
	}
	var opts []outbox.DeadLetterOption
	if sealer != nil {
		opts = append(opts, outbox.WithSealer(sealer))
	}
	return outbox.Redrive(ctx, s.pool, outbox.Ref{Topic: l.Source, ID: l.ID}, opts...)
}

type deadDropCommand struct{ deadLetterSelection }

// Run deletes the selected dead letters.
func (c *deadDropCommand) Run(s *session) error {
	found, err := c.choose(s)
	if err != nil {
		return err
	}
	// inbox.Drop and outbox.Drop delete the dead letter even if it changed after the person saw it.
	// DropDeadLetter deletes it only if it is unchanged.
	return c.change(s, found, "deletes for good", "deleted", func(ctx context.Context, l *record.DeadLetter) error {
		dropped, err := record.DropDeadLetter(ctx, s.pool, changeTimeout, l)
		if err == nil && !dropped {
			return errDeadLetterChanged
		}
		return err
	})
}
