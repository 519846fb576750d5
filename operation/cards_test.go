package operation_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/operation"
)

// card is a card that is declined, and how the program recognizes that.
type card struct {
	no       error
	declined func(error) bool
	named    []error // in WithErrors
	pays     bool    // by the other card
}

// cards are those of a victim, by its input.
var cards = map[string]card{
	"an Is of its own":              {&coded{"declined"}, isDeclined, nil, false},
	"an Is of its own, named":       {fmt.Errorf("card A: %w", &coded{"declined"}), isDeclined, []error{&coded{}}, true},
	"an interface":                  {&coded{"declined"}, declines, nil, false},
	"an interface, named":           {&coded{"declined"}, declines, []error{&coded{}}, true},
	"nothing exported":              {&veiled{"x"}, isDeclined, nil, false},
	"nothing exported, named":       {errStruct, isDeclined, []error{errStruct}, true},
	"an errno":                      {syscall.EACCES, func(err error) bool { return errors.Is(err, fs.ErrPermission) }, nil, true},
	"a struct without fields":       {empty{}, func(err error) bool { return errors.As(err, new(empty)) }, nil, true},
	"a sentinel":                    {fmt.Errorf("card A: %w", errDeclined), isDeclined, nil, true},
	"a rejection that is not taken": {idem.Reject(declined), func(err error) bool { return err != nil }, nil, true},
}

func isDeclined(err error) bool { return errors.Is(err, errDeclined) }

func declines(err error) bool {
	var d interface{ Declined() bool }
	return errors.As(err, &d) && d.Declined()
}

// twoCards pays by card A, and by card B if A is declined. If neither pays, the operation is rejected.
func (c card) twoCards(pool *pgxpool.Pool, at func(string)) *operation.Definition[string] {
	return operation.Define("two cards", func(op *operation.Op, _ string) (idem.Response, error) {
		_, err := operation.Call(op, "card A", operation.Keyed(time.Hour), func(context.Context, string) (string, error) {
			return "", operation.Final(c.no)
		})
		if !c.declined(err) {
			at("not paid")
			return idem.Response{}, idem.Reject(declined)
		}
		paid, err := operation.Call(op, "card B", operation.Keyed(time.Hour), func(ctx context.Context, key string) (string, error) {
			defer at("paid by card B")
			return bankTable(ctx, pool, "charge", key)
		})
		return idem.Response{Status: 201, Body: []byte(paid)}, err
	}, operation.WithErrors(c.named...))
}

// TestError_SameInNextProcess kills a process behind the charge of card B. The next process gets the same error of card A, and takes
// the same branch. Where the record cannot hold that error, the first process has not seen it either.
func TestError_SameInNextProcess(t *testing.T) {
	t.Parallel()
	for in, card := range cards {
		t.Run(in, func(t *testing.T) {
			t.Parallel()
			s := newBankShop(t)
			point, charges := "not paid", ""
			if card.pays {
				point, charges = "paid by card B", "charge"
			}
			newVictim(t, s, point, in).kill()
			res, err := card.twoCards(s.pool, func(string) {}).Do(t.Context(), s.pool, scope, "k", hashA, in, idem.WithWait(limit))
			if err != nil || res.Rejected == card.pays {
				t.Errorf("%+v, %v", res, err)
			}
			if diff := cmp.Diff(charges, s.text(`select coalesce(string_agg(what, ' ' order by id), '') from bank`)); diff != "" {
				t.Errorf("the bank's books (-want +got):\n%s", diff)
			}
		})
	}
}
