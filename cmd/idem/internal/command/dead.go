package command

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/cmd/idem/internal/page"
	"github.com/idem-go/idem/cmd/idem/internal/record"
	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/deadletter"
)

type deadCommand struct {
	List    deadListCommand    `cmd:"" help:"Dead letters, in the order of side, consumer, source and id."`
	Show    deadShowCommand    `cmd:"" help:"One dead letter."`
	Redrive deadRedriveCommand `cmd:"" help:"Let dead letters be tried again."`
	Drop    deadDropCommand    `cmd:"" help:"Delete dead letters for good."`
}

// Help implements kong.HelpProvider.
func (deadCommand) Help() string {
	return `A dead letter is a message that could not be published (side outbox), or that a consumer could not handle (side inbox), after as many
attempts as it may have. It waits for a person: redrive it once the cause is gone, or drop it.

Example: idem dead list --side inbox --consumer billing`
}

// letterFilter selects dead letters.
type letterFilter struct {
	Side     string `enum:",outbox,inbox" default:"" placeholder:"SIDE" help:"outbox: could not be published. inbox: could not be handled."`
	Consumer string `placeholder:"NAME" help:"Of this consumer, on the side of the inbox."`
	Source   string `aliases:"topic" placeholder:"SOURCE" help:"Of this source. Of the outbox that is the topic: --topic is the same."`
}

// moreFilter narrows the selection of a change of many letters.
type moreFilter struct {
	Class string `placeholder:"CLASS" help:"Whose error is of this class."`
	Older span   `placeholder:"SPAN" help:"Dead for longer than this."`
}

func (f letterFilter) of(id string) record.LetterFilter {
	return record.LetterFilter{Only: db.LetterName{Side: f.Side, Consumer: f.Consumer, Source: f.Source, ID: id}}
}

// find returns the dead letter with this ID. It fails if there is none, or if the filter leaves
// several.
func (f letterFilter) find(s *session, id string, reveal bool) (*record.Letter, error) {
	filter := f.of(id)
	filter.Limit, filter.Reveal = 2, reveal
	found, err := letters(s, filter)
	switch {
	case err != nil:
		return nil, err
	case len(found) == 0:
		return nil, noRecordError{fmt.Sprintf("there is no dead letter %s there: idem dead list has those that there are", page.Safe(id))}
	case len(found) > 1:
		return nil, usage("there are several dead letters %s, such as %s and %s: say which by --side, --consumer and --source",
			page.Safe(id), letterName(&found[0]), letterName(&found[1]))
	}
	return &found[0], nil
}

func letters(s *session, f record.LetterFilter) (found []record.Letter, err error) {
	err = s.limited(func(ctx context.Context, tx pgx.Tx) (err error) {
		found, err = record.Letters(ctx, tx, f)
		return err
	})
	return found, err
}

// letterName describes a dead letter in messages.
func letterName(l *record.Letter) string {
	if l.Side == deadletter.Outbox {
		return fmt.Sprintf("%s of topic %s", page.Safe(l.ID), page.Safe(l.Source))
	}
	return fmt.Sprintf("%s of source %s at consumer %s", page.Safe(l.ID), page.Safe(l.Source), page.Safe(l.Consumer))
}

// cursor returns the name of a dead letter in the form that --after takes.
func cursor(l *record.Letter) string {
	parts := []string{l.Side, l.Consumer, l.Source, l.ID}
	for i := range parts {
		parts[i] = url.PathEscape(parts[i])
	}
	return strings.Join(parts, "/")
}

// readCursor parses the value of --after.
func readCursor(text string) (db.LetterName, error) {
	if text == "" {
		return db.LetterName{}, nil
	}
	parts := strings.Split(text, "/")
	ok := len(parts) == 4
	for i := range parts {
		var err error
		parts[i], err = url.PathUnescape(parts[i])
		ok = ok && err == nil
	}
	if !ok {
		return db.LetterName{}, usage("--after is what the end of a list says")
	}
	return db.LetterName{Side: parts[0], Consumer: parts[1], Source: parts[2], ID: parts[3]}, nil
}

// shownLetter is the JSON of a dead letter.
type shownLetter struct {
	Side         string     `json:"side"`
	Consumer     string     `json:"consumer,omitempty"`
	Source       string     `json:"source"`
	ID           string     `json:"id"`
	Key          string     `json:"key"`
	Type         string     `json:"type"`
	Class        string     `json:"class"`
	Reason       string     `json:"reason,omitempty"`
	Attempts     int        `json:"attempts"`
	AddedAt      time.Time  `json:"added_at"`
	DiedAt       time.Time  `json:"died_at"`
	RedriveAt    *time.Time `json:"redrive_at"`
	SealedBy     string     `json:"sealed_by,omitempty"`
	HeaderBytes  int64      `json:"header_bytes"`
	PayloadBytes int64      `json:"payload_bytes"`

	Headers     map[string]string `json:"headers,omitempty"`
	Payload     []byte            `json:"payload,omitempty"`      // base64
	PayloadText *string           `json:"payload_text,omitempty"` // only if the payload is valid UTF-8
}

// newShownLetter omits the reason, which may quote from the message. The command show prints it.
func newShownLetter(l *record.Letter, wholeKey bool) shownLetter {
	shown := shownLetter{
		Side: l.Side, Consumer: l.Consumer, Source: l.Source, ID: l.ID, Key: messageKey(l.Key, wholeKey, jsonKey), Type: l.Type, Class: l.Class,
		Attempts: l.Attempts, AddedAt: l.AddedAt.UTC(), DiedAt: l.DiedAt.UTC(), SealedBy: l.SealedBy, HeaderBytes: l.HeaderBytes, PayloadBytes: l.PayloadBytes,
	}
	if l.RedriveAt != nil {
		at := l.RedriveAt.UTC()
		shown.RedriveAt = &at
	}
	return shown
}

func newShownLetters(all []record.Letter, wholeKey bool) []shownLetter {
	shown := []shownLetter{}
	for i := range all {
		shown = append(shown, newShownLetter(&all[i], wholeKey))
	}
	return shown
}

// tellLetters prints a table of dead letters.
func tellLetters(p *page.Page, all []record.Letter, wholeKey bool) {
	var rows [][]string
	for i := range all {
		l := &all[i]
		note := ""
		if l.RedriveAt != nil {
			note = "to be tried again"
		}
		rows = append(rows, []string{l.Side, page.Safe(l.Consumer), page.Safe(l.Source), page.Safe(l.ID), messageKey(l.Key, wholeKey, shownKey),
			page.Age(l.Now.Sub(l.DiedAt)), fmt.Sprint(l.Attempts), page.Safe(l.Class), note})
	}
	p.Table([]page.Column{{Name: "SIDE"}, {Name: "CONSUMER"}, {Name: "SOURCE"}, {Name: "ID"}, {Name: "KEY"}, {Name: "DEAD FOR", Right: true},
		{Name: "ATTEMPTS", Right: true}, {Name: "CLASS"}, {Name: "NOTE"}}, rows)
}
