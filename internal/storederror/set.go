package storederror

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"io"
	"io/fs"
	"net"
	"os"
	"reflect"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Set is a list of errors that are restored as the same value or type.
type Set []Named

// Named is an error value, or an example of an error type. If a value has a Name, the name is
// stored. The errors of a program have no Name, and are stored by type and text.
type Named struct {
	Name string
	error
}

// Name returns err with the name that is stored for it. The meaning of a name must never change.
func Name(name string, err error) Named { return Named{name, err} }

// Common are the errors of other packages that are in every Set.
var Common = Set{
	{"context.Canceled", context.Canceled}, {"context.DeadlineExceeded", context.DeadlineExceeded},
	{"io.EOF", io.EOF}, {"io.ErrUnexpectedEOF", io.ErrUnexpectedEOF}, {"io.ErrClosedPipe", io.ErrClosedPipe},
	{"fs.ErrInvalid", fs.ErrInvalid}, {"fs.ErrPermission", fs.ErrPermission}, {"fs.ErrExist", fs.ErrExist},
	{"fs.ErrNotExist", fs.ErrNotExist}, {"fs.ErrClosed", fs.ErrClosed}, {"os.ErrDeadlineExceeded", os.ErrDeadlineExceeded},
	{"net.ErrClosed", net.ErrClosed}, {"sql.ErrNoRows", sql.ErrNoRows}, {"pgx.ErrNoRows", pgx.ErrNoRows}, {"pgx.ErrTooManyRows", pgx.ErrTooManyRows},
	{"pgx.ErrTxClosed", pgx.ErrTxClosed}, {"pgx.ErrTxCommitRollback", pgx.ErrTxCommitRollback},
	{"", syscall.Errno(0)}, {"", &pgconn.PgError{}}, {"", &net.DNSError{}},
}

// How an error without a Name is restored. The database has these words, so they must not change.
const (
	byText = "itself" // the error is a value in the Set, and is found by type and text
	byJSON = "like"   // the type of the error is in the Set, and the error is decoded from JSON
)

// Confuses reports whether the stored form of err would be taken for another error of the set.
func (k Set) Confuses(err error) bool {
	l := k.link(err)
	other := k.findByText(l.Type, l.Text)
	return other != nil && !isSame(other, err) && (l.Known != byJSON || !reflect.DeepEqual(other, err))
}

// link returns the stored form of err.
func (k Set) link(err error) link {
	l := link{Type: nameOf(reflect.TypeOf(err)), Text: Text(err)}
	for _, one := range k {
		if isSame(one.error, err) {
			l.Known = cmp.Or(one.Name, byText)
			return l
		}
	}
	if l.Value = jsonOf(shortened(err)); l.Value == nil {
		return l
	}
	if like := k.fromJSON(&l); like != nil && Text(like) == l.Text {
		l.Known = byJSON
	}
	return l
}

// restore returns the error that is stored as l, as a value or type of the Set. It returns nil if
// the Set no longer has that value or type, or if l cannot be decoded.
func (k Set) restore(l *link) error {
	switch l.Known {
	case byText:
		return k.findByText(l.Type, l.Text)
	case byJSON:
		return k.fromJSON(l)
	}
	for _, one := range k {
		if one.Name == l.Known {
			return one.error
		}
	}
	return nil
}

func (k Set) findByText(typeName, text string) error {
	for _, one := range k {
		if nameOf(reflect.TypeOf(one.error)) == typeName && Text(one.error) == text {
			return one.error
		}
	}
	return nil
}

// fromJSON decodes an error into its type, if the set has that type.
func (k Set) fromJSON(l *link) error {
	for _, one := range k {
		t := reflect.TypeOf(one.error)
		if t = variant(t, l.Type); t == nil {
			continue
		}
		if decoded, ok := l.decode(t); ok {
			return decoded.Interface().(error)
		}
		return nil
	}
	return nil
}

// variant returns the type of the given name, which is t, a pointer to t, or the type that t points
// to. It returns nil if none of them has the name and is an error. An example in a Set may have any
// of these types.
func variant(t reflect.Type, name string) reflect.Type {
	types := []reflect.Type{t, reflect.PointerTo(t)}
	if t.Kind() == reflect.Pointer {
		types[1] = t.Elem()
	}
	for _, t := range types {
		if nameOf(t) == name && t.Implements(errorType) {
			return t
		}
	}
	return nil
}

var errorType = reflect.TypeFor[error]()

func isSame(a, b error) bool {
	return reflect.TypeOf(a) == reflect.TypeOf(b) && reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() && a == b
}

// maxJSON is the maximum number of bytes of the JSON that is stored for one error.
const maxJSON = 64 << 10

// jsonOf returns the JSON of err. It returns nil if err cannot be encoded, or if the JSON is longer
// than maxJSON. json.Marshal may panic for an error, because errors are not made to be encoded.
func jsonOf(err error) (value []byte) {
	defer func() {
		if recover() != nil {
			value = nil
		}
	}()
	value, failed := json.Marshal(err)
	if failed != nil || len(value) > maxJSON {
		return nil
	}
	return value
}

// shortened returns an error of the server with its long texts truncated, so that its JSON, with
// the SQLSTATE, is short enough to be stored.
func shortened(err error) error {
	from, ok := err.(*pgconn.PgError)
	if !ok || from == nil {
		return err
	}
	short := *from
	short.Message = cut(short.Message)
	for _, text := range []*string{&short.Detail, &short.Hint, &short.InternalQuery, &short.Where} {
		*text = (*text)[:min(len(*text), 1024)]
	}
	return &short
}

// decodeJSON decodes text into value. If a number is decoded into an interface, it becomes a
// json.Number, because a float64 could lose digits.
func decodeJSON(text []byte, value any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	return d.Decode(value)
}
