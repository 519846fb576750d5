// Package keyheader reads the header field Idempotency-Key.
//
// The IETF draft (draft-ietf-httpapi-idempotency-key-header-07) defines the key as a string of RFC
// 9651, in quotes:
//
//	Idempotency-Key: "8e03978e-40d5-43dd-bc93-6894a57f9324"
//
// Most clients omit the quotes. The key is the same with and without quotes. Parse refuses
// parameters after the string, because the draft defines none.
package keyheader

import (
	"errors"
	"strings"
)

// Attempt is the name of the header field in which a client says that it repeats a request. The
// value is the number of the attempt, in decimal digits, from 2 on. The first attempt does not have
// this field. The field is only a hint: package idemhttp then looks for a stored response before it
// tries to claim the key. Its answer does not depend on the field.
const Attempt = "Idempotency-Attempt"

// The errors of Parse. Parse never wraps them. ErrMissing means that the header has no such field.
// If the field is empty, the error is ErrMalformed.
var (
	ErrMissing   = errors.New("there is no key")
	ErrSeveral   = errors.New("there are several keys")
	ErrMalformed = errors.New("the key is malformed")
)

// Parse returns the key. values are the values of the header field, as [net/http.Header.Values]
// returns them. The key is not empty and consists of printable ASCII. Spaces and tabs around the
// key are removed.
//
// In quotes, a key may contain spaces, and \" and \\ stand for a quote and a backslash. A key
// without quotes is returned unchanged. It must not contain a space or any of `",;\`, because these
// characters have a meaning in structured fields. Parse does not limit the length of a key.
func Parse(values []string) (string, error) {
	switch len(values) {
	case 0:
		return "", ErrMissing
	case 1:
		value := strings.Trim(values[0], " \t")
		if strings.HasPrefix(value, `"`) {
			return parseString(value[1:])
		}
		return parseBare(value)
	}
	return "", ErrSeveral
}

// parseString parses a key in quotes. s begins after the opening quote.
func parseString(s string) (string, error) {
	escaped := false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			return finishString(s[:i], s[i+1:], escaped)
		case c == '\\':
			i++
			if i == len(s) || s[i] != '"' && s[i] != '\\' {
				return "", ErrMalformed
			}
			escaped = true
		case c < ' ' || c > '~':
			return "", ErrMalformed
		}
	}
	return "", ErrMalformed
}

var unescape = strings.NewReplacer(`\"`, `"`, `\\`, `\`)

func finishString(key, rest string, escaped bool) (string, error) {
	switch {
	case strings.HasPrefix(strings.TrimLeft(rest, " \t"), ","):
		return "", ErrSeveral
	case rest != "" || key == "":
		return "", ErrMalformed
	case escaped:
		return unescape.Replace(key), nil
	}
	return key, nil
}

func parseBare(s string) (string, error) {
	for i := range len(s) {
		switch c := s[i]; {
		case c == ',':
			return "", ErrSeveral
		case c <= ' ' || c > '~' || c == '"' || c == ';' || c == '\\':
			return "", ErrMalformed
		}
	}
	if s == "" {
		return "", ErrMalformed
	}
	return s, nil
}
