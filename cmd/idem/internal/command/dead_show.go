package command

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"

	"github.com/idem-go/idem/cmd/idem/internal/page"
	"github.com/idem-go/idem/cmd/idem/internal/record"
	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/deadletter"
	"github.com/idem-go/idem/seal"
)

type deadShowCommand struct {
	ID string `arg:"" help:"Id of the message: idem dead list tells it."`
	letterFilter
	sealKeys
	Reveal bool `help:"Show payload and headers. It takes the keys if they are sealed."`
	Full   bool `help:"Show the whole key."`
}

// Help implements kong.HelpProvider.
func (deadShowCommand) Help() string {
	return `Reads one dead letter. What it says is not even fetched unless --reveal asks for it. The reason is the text of the last error, which the
program has written.

Example: idem dead show 0193c1a0-5a9e-7bbd-8e01-3f1f5f3b2a10 --side outbox --reveal`
}

// Run shows the dead letter.
func (c *deadShowCommand) Run(s *session) error {
	found, err := c.find(s, c.ID, c.Reveal)
	if err != nil {
		return err
	}
	shown := newShownLetter(found, c.Full)
	shown.Reason = found.Reason
	if c.Reveal {
		if err := c.openLetter(s, found); err != nil {
			return err
		}
		if shown.Headers, err = db.ReadHeaders(found.Headers); err != nil {
			return err
		}
		shown.Payload = found.Payload
		if found.Payload != nil && utf8.Valid(found.Payload) {
			text := string(found.Payload)
			shown.PayloadText = &text
		}
	}
	return s.show(shown, func(p *page.Page) { c.text(p, found, &shown) })
}

// sealerOf returns a Sealer that can open the letter, or nil if the letter is plain. It fails if
// the key is missing.
func (k sealKeys) sealerOf(s *session, l *record.Letter) (*seal.Sealer, error) {
	if l.SealedBy == "" {
		return nil, nil
	}
	secrets, err := k.secrets(s)
	if err != nil {
		return nil, err
	}
	if secrets[l.SealedBy] == nil {
		return nil, fmt.Errorf("the dead letter %s is sealed with the key %q: give it with --seal-keys or IDEM_SEAL_KEYS", letterName(l), page.Safe(l.SealedBy))
	}
	return seal.New(seal.Keys{Primary: l.SealedBy, Secrets: secrets}), nil
}

// openLetter decrypts the payload and headers if the letter is sealed.
func (k sealKeys) openLetter(s *session, l *record.Letter) error {
	sealer, err := k.sealerOf(s, l)
	if err != nil || sealer == nil {
		return err
	}
	err = l.Open(sealer)
	if errors.Is(err, seal.ErrTampered) {
		return fmt.Errorf("the dead letter does not open with the key %q: it was changed, moved from another one, or that id has another secret", page.Safe(l.SealedBy))
	}
	return err
}

func (c *deadShowCommand) text(p *page.Page, l *record.Letter, shown *shownLetter) {
	pairs := []page.Pair{{Name: "id", Value: page.Safe(l.ID)}, {Name: "side", Value: l.Side}}
	if l.Side == deadletter.Outbox {
		pairs = append(pairs, page.Pair{Name: "topic", Value: page.Safe(l.Source)})
	} else {
		pairs = append(pairs, page.Pair{Name: "consumer", Value: page.Safe(l.Consumer)}, page.Pair{Name: "source", Value: page.Safe(l.Source)})
	}
	key := "-"
	if l.Key != "" {
		key = shownKey(l.Key, c.Full)
	}
	pairs = append(pairs,
		page.Pair{Name: "key", Value: key},
		page.Pair{Name: "type", Value: page.Safe(orDash(l.Type))},
		page.Pair{Name: "added", Value: page.Time(l.AddedAt) + p.Dim(" ("+relative(l.AddedAt, l.Now)+")")},
		page.Pair{Name: "died", Value: page.Time(l.DiedAt) + p.Dim(" ("+relative(l.DiedAt, l.Now)+")")},
		page.Pair{Name: "attempts", Value: fmt.Sprint(l.Attempts)},
		page.Pair{Name: "class", Value: page.Safe(l.Class)},
		page.Pair{Name: "reason", Value: page.Safe(l.Reason)})
	if l.RedriveAt != nil {
		pairs = append(pairs, page.Pair{Name: "tried again", Value: "since " + page.Time(*l.RedriveAt)})
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
	for _, name := range slices.Sorted(maps.Keys(shown.Headers)) {
		p.Printf("%s: %s\n", p.Bold(page.Safe(name)), page.Safe(shown.Headers[name]))
	}
	switch {
	case shown.PayloadText != nil:
		p.Printf("\n%s\n", page.SafeLines(*shown.PayloadText))
	case len(l.Payload) > 0:
		p.Printf("\n%s that are no text: --json has them\n", page.Bytes(int64(len(l.Payload))))
	}
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
