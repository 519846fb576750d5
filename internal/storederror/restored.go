package storederror

import (
	"encoding/json"
	"reflect"
	"strings"
)

// link is one of the errors that an error wraps, as it is stored.
type link struct {
	Type  string          `json:"type"` // with the path of its package
	Text  string          `json:"text"`
	Value json.RawMessage `json:"value,omitempty"`
	Known string          `json:"known,omitempty"` // how it is made again: itself, or likeIt; "" if it is not known
}

// restored is what a function sees of an error that a step has returned, in its first run and in
// every later one. errors.Is finds in it the errors that it has wrapped, by type and text;
// errors.As, those that JSON can show. What is known is there itself.
type restored struct {
	text  string
	chain []link
	known []error
}

func (e *restored) Error() string { return e.text }

func (e *restored) Unwrap() []error { return e.known }

// Is reports whether target was among the errors.
func (e *restored) Is(target error) bool {
	if target == nil {
		return false
	}
	for i := range e.chain {
		if e.chain[i].is(target) {
			return true
		}
	}
	return false
}

func (l *link) is(target error) bool {
	return l.Type == nameOf(reflect.TypeOf(target)) && l.Text == Text(target)
}

// As sets target to the error of its type, if there was one.
func (e *restored) As(target any) bool {
	value := reflect.ValueOf(target)
	if value.Kind() != reflect.Pointer || value.IsNil() {
		return false
	}
	want := value.Type().Elem()
	for i := range e.chain {
		l := &e.chain[i]
		if l.Type != nameOf(want) || l.Known != "" {
			continue
		}
		if decoded, ok := l.decode(want); ok && (l.same(decoded) || !isEmpty(decoded)) {
			value.Elem().Set(decoded)
			return true
		}
	}
	return false
}

// decode returns the error as one of its type, as far as JSON shows it.
func (l *link) decode(as reflect.Type) (reflect.Value, bool) {
	decoded := reflect.New(as)
	if l.Value == nil || decodeJSON(l.Value, decoded.Interface()) != nil {
		return reflect.Value{}, false
	}
	return decoded.Elem(), true
}

// same reports whether an error that was decoded says what it said.
func (l *link) same(decoded reflect.Value) bool {
	err, ok := decoded.Interface().(error)
	return ok && Text(err) == l.Text
}

// isEmpty reports whether nothing was decoded.
func isEmpty(decoded reflect.Value) bool {
	for decoded.Kind() == reflect.Pointer && !decoded.IsNil() {
		decoded = decoded.Elem()
	}
	return decoded.IsZero()
}

// nameOf tells a type from all others. Two packages may have the same name, and so may their types.
func nameOf(t reflect.Type) string {
	switch {
	case t.Name() == "" && t.Kind() == reflect.Pointer:
		return "*" + nameOf(t.Elem())
	case t.PkgPath() == "":
		return t.String()
	}
	return t.PkgPath() + "." + t.Name()
}

// maxText bounds what is stored of the text of an error.
const maxText = 4096

// Text returns the text of an error as JSON gives it back. An error that was decoded in part may
// not be able to say anything.
func Text(err error) (text string) {
	defer func() {
		if recover() != nil {
			text = ""
		}
	}()
	return strings.ToValidUTF8(cut(err.Error()), "?")
}

func cut(text string) string { return text[:min(len(text), maxText)] }
