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
	Letters []record.Letter
	Next    string // mark of the next page; empty on the last page
}

// readLetters reads a page of dead letters. It reads one letter more than it shows, to learn
// whether there is a next page.
func readLetters(ctx context.Context, tx pgx.Tx, asked url.Values) (any, error) {
	filter := record.LetterFilter{
		Only:  db.LetterName{Side: asked.Get("side"), Consumer: asked.Get("consumer"), Source: asked.Get("source")},
		Class: asked.Get("class"), Limit: rows + 1,
	}
	if after := asked.Get("after"); after != "" && unmark(after, &filter.After) != nil {
		return nil, errMark
	}
	found, err := record.Letters(ctx, tx, filter)
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

// findLetter returns the dead letter with this name, or a problemError.
func findLetter(ctx context.Context, tx pgx.Tx, name db.LetterName) (*record.Letter, error) {
	if name.ID == "" {
		return nil, problemError{noLetter}
	}
	found, err := record.Letters(ctx, tx, record.LetterFilter{Only: name, Limit: rows})
	if err != nil {
		return nil, err
	}
	// A filter ignores empty fields, so it may have found other letters.
	for i := range found {
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

// errMark is returned for a malformed mark of a list.
var errMark = problemError{problem{http.StatusBadRequest, "The page does not know where to go on.", "Go back to the beginning of the list."}}

// mark encodes the position at which a list continues.
func mark(place any) string {
	text, err := json.Marshal(place)
	if err != nil {
		panic(err) // cannot fail for strings and numbers
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// unmark decodes a mark into place.
func unmark(text string, place any) error {
	plain, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return err
	}
	return json.Unmarshal(plain, place)
}
