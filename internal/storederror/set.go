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

// Set are errors that are restored as they were.
type Set []Named

// Named is a value, or an example of a type. What is stored of a value is its name; of one that has
// none, which is the program's, its type and text.
type Named struct {
	Name string
	error
}

// Name returns an error with the name under which it is stored. What a name stands for never
// changes.
func Name(name string, err error) Named { return Named{name, err} }

// Common are the errors of other packages that every definition knows.
var Common = Set{
	{"context.Canceled", context.Canceled}, {"context.DeadlineExceeded", context.DeadlineExceeded},
	{"io.EOF", io.EOF}, {"io.ErrUnexpectedEOF", io.ErrUnexpectedEOF}, {"io.ErrClosedPipe", io.ErrClosedPipe},
	{"fs.ErrInvalid", fs.ErrInvalid}, {"fs.ErrPermission", fs.ErrPermission}, {"fs.ErrExist", fs.ErrExist},
	{"fs.ErrNotExist", fs.ErrNotExist}, {"fs.ErrClosed", fs.ErrClosed}, {"os.ErrDeadlineExceeded", os.ErrDeadlineExceeded},
	{"net.ErrClosed", net.ErrClosed}, {"sql.ErrNoRows", sql.ErrNoRows}, {"pgx.ErrNoRows", pgx.ErrNoRows}, {"pgx.ErrTooManyRows", pgx.ErrTooManyRows},
	{"pgx.ErrTxClosed", pgx.ErrTxClosed}, {"pgx.ErrTxCommitRollback", pgx.ErrTxCommitRollback},
	{"", syscall.Errno(0)}, {"", &pgconn.PgError{}}, {"", &net.DNSError{}},
}

// How an error that has no name is made again.
const (
	itself = "itself" // it is one of the values
	likeIt = "like"   // it is decoded into its type
)

// Confuses reports whether an error could not be told from one of the set.
func (k Set) Confuses(err error) bool {
	l := k.link(err)
	other := k.byText(l.Type, l.Text)
	return other != nil && !isSame(other, err) && (l.Known != likeIt || !reflect.DeepEqual(other, err))
}

// link returns an error as it is stored.
func (k Set) link(err error) link {
	l := link{Type: nameOf(reflect.TypeOf(err)), Text: Text(err)}
	for _, one := range k {
		if isSame(one.error, err) {
			l.Known = cmp.Or(one.Name, itself)
			return l
		}
	}
	if l.Value = jsonOf(shortened(err)); l.Value == nil {
		return l
	}
	if like := k.like(&l); like != nil && Text(like) == l.Text {
		l.Known = likeIt
	}
	return l
}

// again returns the error that a link was made of, nil if the program does not know it any more.
func (k Set) again(l *link) error {
	switch l.Known {
	case itself:
		return k.byText(l.Type, l.Text)
	case likeIt:
		return k.like(l)
	}
	for _, one := range k {
		if one.Name == l.Known {
			return one.error
		}
	}
	return nil
}

func (k Set) byText(typeName, text string) error {
	for _, one := range k {
		if nameOf(reflect.TypeOf(one.error)) == typeName && Text(one.error) == text {
			return one.error
		}
	}
	return nil
}

// like decodes an error into its type, if that is known.
func (k Set) like(l *link) error {
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

// variant returns the type of that name which is t, what it points to, or a pointer to it. An
// example may be any of these.
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

// maxShown bounds the JSON of one error.
const maxShown = 64 << 10

// jsonOf returns what JSON shows of an error, nil if that is nothing or too much. Errors are not
// made for this: their methods may panic.
func jsonOf(err error) (value []byte) {
	defer func() {
		if recover() != nil {
			value = nil
		}
	}()
	value, failed := json.Marshal(err)
	if failed != nil || len(value) > maxShown {
		return nil
	}
	return value
}

// shortened returns an error of the server without what makes it long: statements, rows and stacks.
// Its code has to be seen.
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

// decodeJSON decodes a number that goes into an interface into a json.Number, so that it keeps its
// digits.
func decodeJSON(text []byte, value any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	return d.Decode(value)
}
