package storederror

import (
	"encoding/json"
	"reflect"
	"strings"
)

// link is the stored form of one error: the error of a step, or an error that it wraps.
type link struct {
	Type  string          `json:"type"` // the type of the error, with its package path
	Text  string          `json:"text"`
	Value json.RawMessage `json:"value,omitempty"`
	Known string          `json:"known,omitempty"` // how the error is restored: the name of an error in the Set, byText or byJSON; "" if the error is not restored
}

// restored is the error of a step, decoded from its stored form. The function of an operation gets
// it. errors.Is finds the errors in its chain by type and text. errors.As finds errors that can be
// decoded from JSON. Unwrap returns the errors that a Set has restored.
type restored struct {
	text  string
	chain []link
	known []error
}

func (e *restored) Error() string { return e.text }

func (e *restored) Unwrap() []error { return e.known }

// Is reports whether target is in the chain.
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

// As sets target to an error of the chain that has the type of target and can be decoded.
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

func (l *link) decode(as reflect.Type) (reflect.Value, bool) {
	decoded := reflect.New(as)
	if l.Value == nil || decodeJSON(l.Value, decoded.Interface()) != nil {
		return reflect.Value{}, false
	}
	return decoded.Elem(), true
}

// same reports whether a decoded error has the text of the stored one.
func (l *link) same(decoded reflect.Value) bool {
	err, ok := decoded.Interface().(error)
	return ok && Text(err) == l.Text
}

// isEmpty reports whether a decoded error has only zero fields.
func isEmpty(decoded reflect.Value) bool {
	for decoded.Kind() == reflect.Pointer && !decoded.IsNil() {
		decoded = decoded.Elem()
	}
	return decoded.IsZero()
}

// nameOf returns a name that no other type has. The name contains the package path, because two
// packages may have types of the same name.
func nameOf(t reflect.Type) string {
	switch {
	case t.Name() == "" && t.Kind() == reflect.Pointer:
		return "*" + nameOf(t.Elem())
	case t.PkgPath() == "":
		return t.String()
	}
	return t.PkgPath() + "." + t.Name()
}

// maxText is the maximum number of bytes that are stored of the text of an error.
const maxText = 4096

// Text returns the text of err in valid UTF-8, truncated. It returns an empty text if Error panics,
// as it may for an error that was decoded only in part.
func Text(err error) (text string) {
	defer func() {
		if recover() != nil {
			text = ""
		}
	}()
	return strings.ToValidUTF8(cut(err.Error()), "?")
}

func cut(text string) string { return text[:min(len(text), maxText)] }
