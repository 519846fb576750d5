// Package deadletter reads and removes dead letters. A dead letter is a message that could not be
// published or handled, and that waits until a person decides. The dead letters of outbox and inbox
// are in one table. The package also limits the length of stored error texts.
package deadletter

import (
	"context"
	"errors"
	"fmt"
	"iter"

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

// Name identifies a dead letter. For a dead letter of the outbox, Consumer is empty, and Source is
// the topic.
type Name = db.LetterName

// Letter is a dead letter. Its Contents are in stored form, and Contents.Open decrypts sealed
// contents.
type Letter = db.Letter

// ErrNotFound is the error of Show, Drop and Redrive if no dead letter has the name.
var ErrNotFound = errors.New("the dead letter does not exist")

const listPage = 100 // how many dead letters List reads in one query

// List iterates over the dead letters that match a filter, the third parameter, in the order of
// their names. An empty field of the filter matches all dead letters. The letters have no contents.
// List yields the result of the function read for each letter. After an error it yields the result
// of the function hint, and ends.
func List[D any](
	ctx context.Context, pool *pgxpool.Pool, only Name, read func(*Letter) D, hint func(error) error,
) iter.Seq2[D, error] {
	return func(yield func(D, error) bool) {
		list := db.ListDeadLetters{Only: only, After: Name{Side: only.Side}, Room: listPage}
		for more := true; more; more = len(list.Rows) == listPage {
			if err := engine(pool).Query(ctx, &list); err != nil {
				var none D
				yield(none, hint(err))
				return
			}
			for i := range list.Rows {
				list.After = list.Rows[i].LetterName
				if !yield(read(&list.Rows[i]), nil) {
					return
				}
			}
		}
	}
}

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
	return remove(ctx, pool, name, audit.Note(ctx, db.Drop, "deleted"), func(pgx.Tx, Letter) error { return nil })
}

// Redrive deletes a dead letter. In the same transaction the function f makes the message of the
// dead letter deliverable again, and the action is stored in idem.audit. If f fails, the dead
// letter stays.
func Redrive(ctx context.Context, pool *pgxpool.Pool, name Name, f func(tx pgx.Tx, letter Letter) error) error {
	return remove(ctx, pool, name, audit.Note(ctx, db.Redrive, "to be tried again"), f)
}

// remove deletes a dead letter, calls f and stores note, in one transaction.
func remove(
	ctx context.Context, pool *pgxpool.Pool, name Name, note db.NoteAct, f func(tx pgx.Tx, letter Letter) error,
) error {
	note.Letter = name
	take := &db.TakeDeadLetter{Name: name}
	return Change(ctx, pool, take, &take.Found, func(tx *txn.Tx) error {
		take.LetterName = name
		if _, err := tx.Run("", func(tx pgx.Tx) (bool, error) { return false, f(tx, take.Letter) }); err != nil {
			return err
		}
		if err := tx.Commit(ctx, &note); err != nil {
			return fmt.Errorf("the dead letter may still exist: %w", err)
		}
		return nil
	})
}

// Change runs a transaction. It first sends request, which sets found if the dead letter exists. If
// the dead letter does not exist, Change returns ErrNotFound. Otherwise Change calls the function
// end, which commits. After a serialization failure it runs the transaction again.
func Change(
	ctx context.Context, pool *pgxpool.Pool, request txn.Request, found *bool, end func(tx *txn.Tx) error,
) error {
	once := func() error {
		tx, err := engine(pool).Open(ctx, request)
		if err != nil {
			return err
		}
		defer tx.Close()
		if !*found {
			return ErrNotFound
		}
		return end(tx)
	}
	for pause := txn.RetryPause; ; {
		err := once()
		if !txn.Rerunnable(err) || txn.Sleep(ctx, pause.Next()) != nil {
			return err
		}
	}
}

func engine(pool *pgxpool.Pool) *txn.Engine {
	return &txn.Engine{Pool: pool, Limits: txn.DefaultLimits}
}
