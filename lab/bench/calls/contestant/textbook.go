package contestant

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Textbook is the correct pattern, written by hand. One transaction inserts the key, executes the
// business, and writes the response to the row of the key, one statement at a time. If the author
// forgets nothing, the pattern is atomic, leaves nothing locked after a crash, replays responses,
// and checks the payload. A duplicate waits on the unique index and occupies a connection while it
// waits. If the answer to COMMIT is lost, the caller must find out whether the COMMIT happened.
var Textbook = Contestant{
	Name: "textbook, by hand", Tables: []string{"textbook_keys"}, Open: pooled(textbook),
	Schema: `create table textbook_keys (
		scope text not null, key text not null, hash bytea not null, status int, body bytea,
		created_at timestamptz not null default now(), expires_at timestamptz not null, primary key (scope, key))`,
}

var errReplay = errors.New("the key is there")

func textbook(ctx context.Context, pool *pgxpool.Pool, call Call) (Answer, error) {
	answer := Answer{Body: call.Body}
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		hash := HashOf(call)
		tag, err := tx.Exec(ctx, `insert into textbook_keys (scope, key, hash, expires_at) values ($1, $2, $3, now() + interval '24 hours')
			on conflict do nothing`, Scope, call.Key, hash[:])
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			if answer, err = loadTextbook(ctx, tx, call); err != nil {
				return err
			}
			return errReplay // makes BeginFunc roll back, because there is nothing to commit
		}
		if err := call.Execute(ctx, tx); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, "update textbook_keys set status = $3, body = $4 where scope = $1 and key = $2", Scope, call.Key, 201, call.Body)
		return err
	})
	if errors.Is(err, errReplay) {
		err = nil
	}
	return answer, err
}

func loadTextbook(ctx context.Context, tx pgx.Tx, call Call) (Answer, error) {
	var hash []byte
	answer := Answer{Replayed: true}
	err := tx.QueryRow(ctx, "select hash, body from textbook_keys where scope = $1 and key = $2", Scope, call.Key).Scan(&hash, &answer.Body)
	if want := HashOf(call); err == nil && !bytes.Equal(hash, want[:]) {
		err = fmt.Errorf("key %.4s…: another payload", call.Key)
	}
	if err != nil {
		return Answer{}, err
	}
	return answer, nil
}
