package operation

import (
	"fmt"
	"reflect"
)

// plain returns an error of the user's code as one that can be asked for its text and what it wraps. The methods of a nil pointer that is an
// error panic, and the panic would take the place of an answer that a call has had.
func plain(err error) (told error) {
	defer func() {
		if recover() != nil {
			told = speechless(err)
		}
	}()
	hollow := false
	walk(err, func(e error) {
		_ = e.Error()
		v := reflect.ValueOf(e)
		hollow = hollow || v.Kind() == reflect.Pointer && v.IsNil()
	})
	if hollow {
		return speechless(err)
	}
	return err
}

// speechless returns an error in the place of one that cannot speak. What that says of an attempt is kept.
func speechless(err error) error {
	said, types := spoken(err)
	told := fmt.Errorf("an error of type %s, which has no text: it is a nil pointer, or its methods panic", types)
	switch {
	case said.unknown:
		return Unknown(told)
	case said.unsent && said.final:
		return Final(NotSent(told))
	case said.unsent:
		return NotSent(told)
	case said.final:
		return Final(told)
	}
	return told
}

// spoken returns as much as can be had from an error without a panic.
func spoken(err error) (s said, types string) {
	types = reflect.TypeOf(err).String()
	defer func() { _ = recover() }()
	s = saidBy(err)
	types = typesOf(err)
	return s, types
}
