package operation

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"

	"github.com/idem-go/idem"
)

// failure is how the error of a step is stored. When the step is replayed the function has to find in it what it has found
// the first time, or it goes another way than it went.
type failure struct {
	Text   string         `json:"text"`
	Final  bool           `json:"final,omitempty"`
	Chain  []link         `json:"chain,omitempty"`
	Reject *idem.Response `json:"reject,omitempty"`
}

// link is one of the errors that an error wraps.
type link struct {
	Type  string          `json:"type"`
	Text  string          `json:"text"`
	Value json.RawMessage `json:"value,omitempty"`
}

// maxText bounds what is stored of the text of an error.
const maxText = 4096

// encodeFailure returns what is stored of err.
func encodeFailure(err error, rejection *idem.Response) []byte {
	f := failure{Text: cut(err.Error()), Final: IsFinal(err), Reject: rejection}
	walk(err, func(e error) {
		l := link{Type: typeOf(e), Text: cut(e.Error())}
		if value, err := json.Marshal(e); err == nil && len(value) <= maxText {
			l.Value = value
		}
		f.Chain = append(f.Chain, l)
	})
	stored, _ := json.Marshal(f) // of strings and of JSON: it cannot fail
	return stored
}

// typesOf tells what kind of error it is without any of its text.
func typesOf(err error) string {
	var types []string
	walk(err, func(e error) { types = append(types, typeOf(e)) })
	return strings.Join(types, ", ")
}

// storable makes a text one that Postgres takes: errors of other systems may hold anything.
func storable(text string) string {
	return strings.ToValidUTF8(strings.ReplaceAll(cut(text), "\x00", ""), "\uFFFD")
}

func cut(text string) string { return text[:min(len(text), maxText)] }

func typeOf(v any) string { return reflect.TypeOf(v).String() }

// walk visits an error and all that it wraps, but for a few that nobody asks for.
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

// decodeFailure returns the error that was stored.
func decodeFailure(stored []byte) (error, error) {
	var f failure
	if err := json.Unmarshal(stored, &f); err != nil {
		return nil, err
	}
	err := error(&rememberedError{f})
	if f.Reject != nil {
		err = errors.Join(idem.Reject(*f.Reject), err)
	}
	if f.Final {
		err = &finalError{cause: err}
	}
	return err, nil
}

// rememberedError is an error that a step has returned in an earlier run. errors.Is finds in it the errors that it has
// wrapped, by type and text; errors.As, those that JSON can show.
type rememberedError struct{ failure }

func (e *rememberedError) Error() string { return e.Text }

// Is reports whether target was among the errors.
func (e *rememberedError) Is(target error) bool {
	if target == nil {
		return false
	}
	for _, l := range e.Chain {
		if l.Type == typeOf(target) && l.Text == cut(target.Error()) {
			return true
		}
	}
	return false
}

// As sets target to the error of its type, if there was one.
func (e *rememberedError) As(target any) bool {
	value := reflect.ValueOf(target)
	if value.Kind() != reflect.Pointer || value.IsNil() {
		return false
	}
	want := value.Type().Elem()
	for _, l := range e.Chain {
		if l.Type != want.String() || l.Value == nil {
			continue
		}
		decoded := reflect.New(want)
		if err := json.Unmarshal(l.Value, decoded.Interface()); err == nil && !decoded.Elem().IsZero() {
			value.Elem().Set(decoded.Elem())
			return true
		}
	}
	return false
}
