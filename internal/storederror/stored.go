// Package storederror stores errors of steps, and restores them. The function of an operation sees
// what is stored, also the first time: if it found in an error what it does not find later, it
// would go another way later than it went.
package storederror

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/idem-go/idem/internal/bridge"
)

// Mark is an error that says something of the attempt that has returned the error that it wraps,
// and is no error of the program.
type Mark interface {
	error
	// IsFinal reports whether it says that the next attempt would have the same outcome. That is
	// stored.
	IsFinal() bool
}

// isFinal reports whether an error is, or wraps, a Mark that is final.
func isFinal(err error) bool {
	if mark, ok := err.(Mark); ok && mark.IsFinal() {
		return true
	}
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		return isFinal(e.Unwrap())
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(e.Unwrap(), isFinal)
	}
	return false
}

// stored is how the error of a step is stored.
type stored struct {
	Text   string           `json:"text"`
	Final  bool             `json:"final,omitempty"`
	Chain  []link           `json:"chain,omitempty"`
	Reject *bridge.Response `json:"reject,omitempty"`
}

// maxChain bounds what is stored of the errors that an error wraps.
const maxChain = 1 << 18

// Encode returns what is stored of err.
func (k Set) Encode(err error) []byte {
	f := stored{Text: Text(err), Final: isFinal(err)}
	if rejected, ok := bridge.RejectionOf(err); ok {
		f.Reject = &rejected
	}
	walk(err, func(e error) {
		switch e := e.(type) {
		case Mark:
		case *restored: // of an earlier step
			f.Chain = append(f.Chain, e.chain...)
		case bridge.Rejecter:
		default:
			f.Chain = append(f.Chain, k.link(e))
		}
	})
	f.Chain = bounded(f.Chain)
	text, _ := json.Marshal(f) // of strings and of JSON: it cannot fail
	return text
}

// bounded returns as many of the errors as may be stored of one: an error may wrap those of many
// steps.
func bounded(chain []link) []link {
	size := 0
	for i := range chain {
		if size += len(chain[i].Text) + len(chain[i].Value); size > maxChain {
			return chain[:i]
		}
	}
	return chain
}

// Decode returns the error that was stored, marked as final if it was, and with the rejection that
// it carried. The second error says why it cannot be restored.
func (k Set) Decode(text []byte, final func(error) error, reject func(bridge.Response) error) (error, error) {
	var f stored
	if err := json.Unmarshal(text, &f); err != nil {
		return nil, errors.New("does not decode")
	}
	r := &restored{text: f.Text, chain: f.Chain}
	for i := range f.Chain {
		l := &f.Chain[i]
		if l.Known == "" {
			continue
		}
		err := k.again(l)
		if err == nil {
			return nil, fmt.Errorf("has a %s, which the code no longer names in WithErrors, or cannot read", l.Type)
		}
		r.known = append(r.known, err)
	}
	if f.Reject != nil {
		r.known = append(r.known, reject(*f.Reject))
	}
	err := error(r)
	if len(f.Chain) == 1 && len(r.known) == 1 && f.Chain[0].Text == f.Text && f.Reject == nil {
		err = r.known[0] // it wraps nothing, and is nothing else
	}
	if f.Final {
		err = final(err)
	}
	return err, nil
}

// Types returns the types of an error and of all that it wraps, without any of its text.
func Types(err error) string {
	var types []string
	walk(err, func(e error) { types = append(types, reflect.TypeOf(e).String()) })
	return strings.Join(types, ", ")
}

// Storable returns a text that Postgres takes, up to 4 KiB: errors of other systems may hold
// anything.
func Storable(text string) string {
	return strings.ToValidUTF8(strings.ReplaceAll(cut(text), "\x00", ""), "\uFFFD")
}

// walk visits an error and all that it wraps, but for a few that no caller asks for.
func walk(err error, visit func(error)) {
	const most = 32
	left := most
	var down func(error)
	down = func(err error) {
		if err == nil || left == 0 {
			return
		}
		left--
		visit(err)
		switch e := err.(type) {
		case interface{ Unwrap() error }:
			down(e.Unwrap())
		case interface{ Unwrap() []error }:
			for _, inner := range e.Unwrap() {
				down(inner)
			}
		}
	}
	down(err)
}
