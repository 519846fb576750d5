// Package keyheader reads the header field Idempotency-Key.
//
// The IETF's draft (draft-ietf-httpapi-idempotency-key-header-07) has the key as a string of RFC 9651, in quotes:
//
//	Idempotency-Key: "8e03978e-40d5-43dd-bc93-6894a57f9324"
//
// Most clients leave the quotes out. Both forms spell the same key. Parameters after the string are refused: the draft's
// grammar has none, and a client that sends some means something by them that is not heeded here.
package keyheader

import (
	"errors"
	"strings"
)

// The ways to spell no key, or more than one. They are returned as they are, never wrapped. Only a field that is not there
// is missing; one that is empty is malformed.
var (
	ErrMissing   = errors.New("there is no key")
	ErrSeveral   = errors.New("there are several keys")
	ErrMalformed = errors.New("the key is malformed")
)

// Parse returns the key that the values of the field spell, as [net/http.Header.Values] returns them. It is never empty,
// and consists of printable ASCII. Spaces and tabs around it do not count.
//
// In quotes, a key may contain spaces, and \" and \\ stand for a quote and a backslash. A bare key is taken as it is; it
// has no space, none of the four characters `",;\` that mean something in a structured field, and thus one reading.
// How long a key may be is not decided here.
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

// parseString reads a string whose opening quote has been read.
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
