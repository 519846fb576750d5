package deadletter

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/internal/audit"
	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/txn"
)

// The sides that have dead letters.
const (
	Outbox = "outbox"
	Inbox  = "inbox"
)

// Name names a dead letter. Those of an outbox have no Consumer, and their topic as Source.
type Name = db.LetterName

// Letter is a dead letter. What it says is in Contents, as it is stored: Contents.Open opens it.
type Letter = db.Letter

// ErrNotFound says that there is no dead letter of the name.
var ErrNotFound = errors.New("there is no such dead letter")

// List returns dead letters in the order of their names, beyond one, without what they say. What is
// empty in only does not matter.
func List(ctx context.Context, pool *pgxpool.Pool, only, after Name, room int) ([]Letter, error) {
	list := db.ListDeadLetters{Only: only, After: after, Room: room}
	err := engine(pool).Query(ctx, &list)
	return list.Rows, err
}

// Show returns a dead letter.
func Show(ctx context.Context, pool *pgxpool.Pool, name Name) (Letter, error) {
	read := db.ShowDeadLetter{Name: name}
	if err := engine(pool).Query(ctx, &read); err != nil {
		return Letter{}, err
	}
	if !read.Found {
		return Letter{}, ErrNotFound
	}
	read.LetterName = name
	return read.Letter, nil
}

// Drop deletes a dead letter, and stores the action in idem.audit.
func Drop(ctx context.Context, pool *pgxpool.Pool, name Name) error {
	return take(ctx, pool, name, audit.Note(ctx, db.Drop, "deleted"), func(pgx.Tx, Letter) error { return nil })
}

// Redrive deletes a dead letter in the transaction in which f makes its message deliverable again.
// The transaction stores the action in idem.audit. If f fails, the letter stays.
func Redrive(ctx context.Context, pool *pgxpool.Pool, name Name, f func(tx pgx.Tx, letter Letter) error) error {
	return take(ctx, pool, name, audit.Note(ctx, db.Redrive, "to be tried again"), f)
}

func take(ctx context.Context, pool *pgxpool.Pool, name Name, note db.NoteAct, f func(tx pgx.Tx, letter Letter) error) error {
	note.Letter = name
	for pause := txn.RetryPause; ; {
		err := takeOnce(ctx, pool, &note, f)
		if !txn.Rerunnable(err) || txn.Sleep(ctx, pause.Next()) != nil {
			return err
		}
	}
}

func takeOnce(ctx context.Context, pool *pgxpool.Pool, note *db.NoteAct, f func(tx pgx.Tx, letter Letter) error) error {
	read := db.TakeDeadLetter{Name: note.Letter}
	tx, err := engine(pool).Open(ctx, &read)
	if err != nil {
		return err
	}
	defer tx.Close()
	if !read.Found {
		return ErrNotFound
	}
	read.LetterName = note.Letter
	if _, err := tx.Run("", func(tx pgx.Tx) (bool, error) { return false, f(tx, read.Letter) }); err != nil {
		return err
	}
	if err := tx.Commit(ctx, note); err != nil {
		return fmt.Errorf("the dead letter may still be there: %w", err)
	}
	return nil
}

func engine(pool *pgxpool.Pool) *txn.Engine {
	return &txn.Engine{Pool: pool, Limits: txn.DefaultLimits}
}
