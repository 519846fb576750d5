package store

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/roundtrip"
)

// Act is something that a person does. Databases hold these words.
type Act string

// The acts.
const (
	Evict   Act = "evict"
	Retry   Act = "retry"
	Cancel  Act = "cancel"
	Resolve Act = "resolve"
	Redrive Act = "redrive"
	Drop    Act = "drop"
	Forget  Act = "forget"
)

// NoteAct puts on record what a person did, in the transaction of the act. What does not apply is empty.
type NoteAct struct {
	Act            Act
	Outcome        string
	Person, Reason string

	OperationID string
	Step        string
	Scope, Key  string // the key abridged
	Letter      LetterName
}

var noteAct = roundtrip.New(roundtrip.Statement{
	SQL:    db.NoteAct,
	Params: []roundtrip.Param{plain, plain, text, text, plain, text, text, text, text, text, text, text},
})

// Queue adds the statement.
func (n *NoteAct) Queue(trip *roundtrip.Trip) {
	var id []byte
	if n.OperationID != "" {
		id = []byte(n.OperationID)
	}
	trip.Add(noteAct, []byte(n.Act), []byte(n.Outcome), []byte(n.Person), []byte(n.Reason), id, []byte(n.Step), []byte(n.Scope), []byte(n.Key),
		[]byte(n.Letter.Side), []byte(n.Letter.Consumer), []byte(n.Letter.Source), []byte(n.Letter.ID))
}

// Read reads the answer.
func (*NoteAct) Read(trip *roundtrip.Trip) { trip.Skip() }

// In puts it on record through a transaction of the caller's.
func (n *NoteAct) In(ctx context.Context, tx pgx.Tx) error {
	var id *string
	if n.OperationID != "" {
		id = &n.OperationID
	}
	_, err := tx.Exec(ctx, db.NoteAct, string(n.Act), n.Outcome, n.Person, n.Reason, id, n.Step, n.Scope, n.Key,
		n.Letter.Side, n.Letter.Consumer, n.Letter.Source, n.Letter.ID)
	return err
}
