package operation

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/longcall"
)

// failure is how the error of a step is stored. The function is given what is stored, also the first time: if it found in an error what
// it does not find later, it would go another way later than it went.
type failure struct {
	Text   string         `json:"text"`
	Final  bool           `json:"final,omitempty"`
	Chain  []link         `json:"chain,omitempty"`
	Reject *idem.Response `json:"reject,omitempty"`
}

// encodeFailure returns what is stored of err.
func encodeFailure(k known, err error) []byte {
	f := failure{Text: textOf(err), Final: IsFinal(err)}
	if rejected, ok := longcall.RejectionOf(err); ok {
		f.Reject = (*idem.Response)(&rejected)
	}
	walk(err, func(e error) {
		switch e := e.(type) {
		case *finalError, *unknownError, *notSentError:
		case *rememberedError: // of an earlier step
			f.Chain = append(f.Chain, e.chain...)
		default:
			if reflect.TypeOf(e) != rejectionType {
				f.Chain = append(f.Chain, k.link(e))
			}
		}
	})
	f.Chain = bounded(f.Chain)
	stored, _ := json.Marshal(f) // of strings and of JSON: it cannot fail
	return stored
}

// bounded returns as many of the errors as may be stored of one: an error may wrap those of many steps.
func bounded(chain []link) []link {
	size := 0
	for i := range chain {
		if size += len(chain[i].Text) + len(chain[i].Value); size > maxValue/4 {
			return chain[:i]
		}
	}
	return chain
}

// rejectionType is the type of what is stored as Reject.
var rejectionType = reflect.TypeOf(idem.Reject(idem.Response{}))

// decodeFailure returns the error that was stored.
func decodeFailure(k known, stored []byte) (error, error) {
	var f failure
	if err := json.Unmarshal(stored, &f); err != nil {
		return nil, fmt.Errorf("does not decode")
	}
	remembered := &rememberedError{text: f.Text, chain: f.Chain}
	for i := range f.Chain {
		l := &f.Chain[i]
		if l.Known == "" {
			continue
		}
		err := k.again(l)
		if err == nil {
			return nil, fmt.Errorf("has a %s, which the code no longer names in WithErrors, or cannot read", l.Type)
		}
		remembered.known = append(remembered.known, err)
	}
	if f.Reject != nil {
		remembered.known = append(remembered.known, idem.Reject(*f.Reject))
	}
	err := error(remembered)
	if len(f.Chain) == 1 && len(remembered.known) == 1 && f.Chain[0].Text == f.Text && f.Reject == nil {
		err = remembered.known[0] // it wraps nothing, and is nothing else
	}
	if f.Final {
		err = &finalError{cause: err}
	}
	return err, nil
}

// typesOf tells what kind of error it is without any of its text.
func typesOf(err error) string {
	var types []string
	walk(err, func(e error) { types = append(types, reflect.TypeOf(e).String()) })
	return strings.Join(types, ", ")
}

// storable makes a text one that Postgres takes: errors of other systems may hold anything.
func storable(text string) string {
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
