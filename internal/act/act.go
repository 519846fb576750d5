// Package act is what is known of a person who does something to a record, an operation or a message: it travels in the context of the
// call, and the transaction of the act puts it on record.
package act

import (
	"context"
	"strings"

	"github.com/idem-go/idem/internal/db"
)

// How many bytes are kept of what a program says.
const (
	maxPerson = 200
	maxReason = 1000
)

type (
	personKey struct{}
	reasonKey struct{}
)

// WithPerson returns a context whose acts are those of a person.
func WithPerson(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, personKey{}, printable(name, maxPerson))
}

// WithReason returns a context whose acts have a reason.
func WithReason(ctx context.Context, reason string) context.Context {
	return context.WithValue(ctx, reasonKey{}, printable(reason, maxReason))
}

// Of returns what is to be put on record of an act that is done with this context.
func Of(ctx context.Context, what db.Act, outcome string) db.NoteAct {
	person, _ := ctx.Value(personKey{}).(string)
	reason, _ := ctx.Value(reasonKey{}).(string)
	return db.NoteAct{Act: what, Outcome: outcome, Person: person, Reason: reason}
}

// printable returns a text that a database takes, cut off at a limit of bytes.
func printable(text string, limit int) string {
	if len(text) > limit {
		text = strings.ToValidUTF8(text[:limit], "")
	}
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
}
