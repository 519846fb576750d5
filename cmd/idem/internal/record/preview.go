package record

import (
	"strings"

	"github.com/idem-go/idem/cmd/idem/internal/page"
	"github.com/idem-go/idem/operation"
)

// PreviewOfCancel describes in sentences what Cancel would do.
func PreviewOfCancel(p *operation.CancelPreview) (sentences []string) {
	say := func(text string) { sentences = append(sentences, text) }
	if len(p.InDoubt) > 0 {
		say("The outcome of a call is in doubt: " + names(p.InDoubt) + ".")
	} else {
		say("No call is in doubt.")
	}
	if p.Asks {
		say("Cancel asks the other side whether the call happened.")
	}
	if p.Repeats {
		say("Cancel makes the call again under its key, so that its undo can run. The option without-calling prevents that.")
	}
	if p.Parks != "" {
		say("The operation parks with " + string(p.Parks) + " before anything is undone: a person must resolve the call.")
	}
	if len(p.Undos) > 0 {
		say("These steps are undone, in this order: " + names(p.Undos) + ".")
	} else {
		say("Nothing is undone.")
	}
	if len(p.Kept) > 0 {
		say("These steps are done and stay, because they have no undo: " + names(p.Kept) + ".")
	}
	return sentences
}

func names(steps []string) string {
	shown := make([]string, len(steps))
	for i, step := range steps {
		shown[i] = page.Safe(step)
	}
	return strings.Join(shown, ", ")
}
