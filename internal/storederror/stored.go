// Package storederror stores the errors of steps and restores them. The function of an operation
// gets the restored error even in its first run. If the first run got the original error, it could
// find something in it that is not stored, and take another path than later runs.
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

// Mark is an error that says something about an attempt at a step. It wraps the error of the
// program and is not stored itself.
type Mark interface {
	error
	// IsFinal reports whether the next attempt would have the same outcome. This result is stored.
	IsFinal() bool
}

// isFinal reports whether err is or wraps a Mark that is final.
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

// stored is the JSON form of the error of a step.
type stored struct {
	Text   string           `json:"text"`
	Final  bool             `json:"final,omitempty"`
	Chain  []link           `json:"chain,omitempty"`
	Reject *bridge.Response `json:"reject,omitempty"`
}

// maxChain is the maximum number of bytes that are stored of all errors in the chain of an error.
const maxChain = 1 << 18

// Encode returns the stored form of err.
func (k Set) Encode(err error) []byte {
	f := stored{Text: Text(err), Final: isFinal(err)}
	if rejected, ok := bridge.RejectionOf(err); ok {
		f.Reject = &rejected
	}
	walk(err, func(e error) {
		switch e := e.(type) {
		case Mark:
		case *restored: // the error of an earlier step
			f.Chain = append(f.Chain, e.chain...)
		case bridge.Rejecter:
		default:
			f.Chain = append(f.Chain, k.link(e))
		}
	})
	f.Chain = bounded(f.Chain)
	text, _ := json.Marshal(f) // cannot fail for strings and valid JSON
	return text
}

// bounded returns the first errors of chain, up to maxChain bytes. A chain may be long, because an
// error may wrap the errors of many steps.
func bounded(chain []link) []link {
	size := 0
	for i := range chain {
		if size += len(chain[i].Text) + len(chain[i].Value); size > maxChain {
			return chain[:i]
		}
	}
	return chain
}

// Decode returns the stored error. If the error was final, the result is what the function final
// returns for it. If the error was a rejection, the result wraps what the function reject returns
// for the stored response. The second result says why the stored error cannot be restored.
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
		err := k.restore(l)
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
		err = r.known[0] // the step has returned a known error without wrapping it
	}
	if f.Final {
		err = final(err)
	}
	return err, nil
}

// Types returns the types of err and of all errors that it wraps, without their texts.
func Types(err error) string {
	var types []string
	walk(err, func(e error) { types = append(types, reflect.TypeOf(e).String()) })
	return strings.Join(types, ", ")
}

// Storable returns text in a form that Postgres stores, truncated to 4 KiB.
func Storable(text string) string {
	return strings.ToValidUTF8(strings.ReplaceAll(cut(text), "\x00", ""), "\uFFFD")
}

// walk calls visit for err and the errors that it wraps, for 32 errors at most.
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
