package command

import (
	"fmt"
	"time"

	"github.com/idem-go/idem/cmd/idem/internal/page"
	"github.com/idem-go/idem/cmd/idem/internal/record"
)

type deadListCommand struct {
	letterFilter
	moreFilter
	Limit int    `default:"50" help:"How many at most, up to 10000. Default: ${default}."`
	After string `placeholder:"NAME" help:"Go on behind this one: the end of a list says how."`
	Full  bool   `help:"Show whole keys."`
}

// Help implements kong.HelpProvider.
func (deadListCommand) Help() string {
	return `Reads dead letters in the order of side, consumer, source and id, up to --limit, and nothing of what they say. CLASS is the kind of the
last error: the SQLSTATE of one of Postgres, or the type of another. idem dead show has its text.

Example: idem dead list --side outbox --topic orders`
}

// Run lists dead letters.
func (c *deadListCommand) Run(s *session) error {
	if c.Limit < 1 || c.Limit > 10000 {
		return usage("--limit is between 1 and 10000: go on with --after")
	}
	after, err := readCursor(c.After)
	if err != nil {
		return err
	}
	filter := c.of("")
	filter.Class, filter.Older, filter.After, filter.Limit = c.Class, time.Duration(c.Older), after, c.Limit+1
	found, err := letters(s, filter)
	if err != nil {
		return err
	}
	next := ""
	if len(found) > c.Limit {
		found = found[:c.Limit]
		next = cursor(&found[len(found)-1])
	}
	shown := shownLetterList{newShownLetters(found, c.Full), next != "", next}
	return s.show(shown, func(p *page.Page) { c.text(p, found, next) })
}

// shownLetterList is the JSON of the list.
type shownLetterList struct {
	Letters []shownLetter `json:"dead_letters"`
	More    bool          `json:"more"`
	After   string        `json:"after,omitempty"` // value for --after, if there are more
}

func (c *deadListCommand) text(p *page.Page, found []record.Letter, next string) {
	if len(found) == 0 {
		p.Printf("no dead letters\n")
		return
	}
	tellLetters(p, found, c.Full)
	if next != "" {
		p.Printf("%s\n", p.Dim(fmt.Sprintf("there are more: --after '%s' (%d shown)", next, len(found))))
	}
}
