package ui

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/cmd/idem/internal/record"
	"github.com/idem-go/idem/internal/db"
)

// rows is the number of rows of a list.
const rows = 50

// letters is the data of the list of dead letters.
type letters struct {
	Letters []record.DeadLetter
	Next    string // mark of the next page; empty if there is none
}

func readLetters(ctx context.Context, tx pgx.Tx, asked url.Values) (any, error) {
	filter := record.DeadLetterFilter{
		Only:  db.LetterName{Side: asked.Get("side"), Consumer: asked.Get("consumer"), Source: asked.Get("source")},
		Class: asked.Get("class"), Limit: rows + 1,
	}
	if after := asked.Get("after"); after != "" && unmark(after, &filter.After) != nil {
		return nil, errMark
	}
	found, err := record.DeadLetters(ctx, tx, filter)
	list := letters{Letters: found}
	if len(found) > rows {
		list.Letters = found[:rows]
		list.Next = mark(found[rows-1].LetterName)
	}
	return list, err
}

func readLetter(ctx context.Context, tx pgx.Tx, asked url.Values) (any, error) {
	l, err := findLetter(ctx, tx, db.LetterName{Side: asked.Get("side"), Consumer: asked.Get("consumer"), Source: asked.Get("source"), ID: asked.Get("id")})
	return l, err
}

// findLetter returns the dead letter with exactly this name, or a problemError if there is none.
func findLetter(ctx context.Context, tx pgx.Tx, name db.LetterName) (*record.DeadLetter, error) {
	if name.ID == "" {
		return nil, problemError{noLetter}
	}
	found, err := record.DeadLetters(ctx, tx, record.DeadLetterFilter{Only: name, Limit: rows})
	if err != nil {
		return nil, err
	}
	for i := range found { // an empty field of the filter matches all
		if found[i].LetterName == name {
			return &found[i], nil
		}
	}
	return nil, problemError{noLetter}
}

// linkOf returns the query of the link to a dead letter.
func linkOf(l db.LetterName) string {
	return query("side", l.Side, "consumer", l.Consumer, "source", l.Source, "id", l.ID)
}

// errMark means that the position in a link to the next page cannot be decoded.
var errMark = problemError{problem{http.StatusBadRequest, "The position in the list is invalid.", "Go back to the beginning of the list."}}

// mark encodes the position at which the next page of a list begins.
func mark(place any) string {
	text, err := json.Marshal(place)
	if err != nil {
		panic(err) // a position has only strings and numbers
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// unmark is the inverse of mark.
func unmark(text string, place any) error {
	plain, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return err
	}
	return json.Unmarshal(plain, place)
}
