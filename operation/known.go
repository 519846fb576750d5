package operation

import (
	"context"
	"database/sql"
	"io"
	"io/fs"
	"net"
	"os"
	"reflect"
	"slices"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idem-go/idem"
)

// known are errors that are made again as they were: values, and examples of types.
type known []error

// everywhere are the errors that are known to every definition.
var everywhere = known{
	context.Canceled, context.DeadlineExceeded, io.EOF, io.ErrUnexpectedEOF, io.ErrClosedPipe, io.ErrShortWrite, io.ErrNoProgress,
	fs.ErrInvalid, fs.ErrPermission, fs.ErrExist, fs.ErrNotExist, fs.ErrClosed, os.ErrDeadlineExceeded, os.ErrNoDeadline, os.ErrProcessDone,
	net.ErrClosed, sql.ErrNoRows, sql.ErrTxDone, sql.ErrConnDone, pgx.ErrNoRows, pgx.ErrTooManyRows, pgx.ErrTxClosed, pgx.ErrTxCommitRollback,
	idem.ErrMismatch, idem.ErrInProgress, idem.ErrTxEnded, idem.ErrTxAborted,
	ErrParked, ErrTimeout, ErrCancelled, ErrNotParked, ErrUnknownOperation, ErrInvalidName, ErrValueTooLarge, ErrMisused,
	syscall.Errno(0), &pgconn.PgError{}, &net.DNSError{},
}

// How a known error is made again.
const (
	itself = "itself" // it is one of the values
	likeIt = "like"   // it is decoded into its type
)

// confuse reports whether an error could not be told from one that is known.
func (k known) confuse(err error) bool {
	l := k.link(err)
	other := k.byText(l.Type, l.Text)
	return other != nil && !isSame(other, err) && (l.Known != likeIt || !reflect.DeepEqual(other, err))
}

// link returns an error as it is stored.
func (k known) link(err error) link {
	l := link{Type: nameOf(reflect.TypeOf(err)), Text: textOf(err)}
	if slices.ContainsFunc(k, func(one error) bool { return isSame(one, err) }) {
		l.Known = itself
		return l
	}
	if value, failed := (jsonCodec{}).Encode(shortened(err)); failed == nil && len(value) <= maxShown {
		l.Value = value
	}
	if k.like(&l) != nil {
		l.Known = likeIt
	}
	return l
}

// again returns the error that a link was made of, nil if the program does not know it any more.
func (k known) again(l *link) error {
	if l.Known == itself {
		return k.byText(l.Type, l.Text)
	}
	return k.like(l)
}

func (k known) byText(typeName, text string) error {
	for _, err := range k {
		if nameOf(reflect.TypeOf(err)) == typeName && textOf(err) == text {
			return err
		}
	}
	return nil
}

// like decodes an error into its type, if that is known, and if it is the same then.
func (k known) like(l *link) error {
	for _, err := range k {
		t := reflect.TypeOf(err)
		if nameOf(t) != l.Type {
			continue
		}
		if decoded, ok := l.decode(t); ok && l.same(decoded) {
			return decoded.Interface().(error)
		}
		return nil
	}
	return nil
}

func isSame(a, b error) bool {
	return reflect.TypeOf(a) == reflect.TypeOf(b) && reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() && a == b
}

// maxShown bounds the JSON of one error.
const maxShown = 64 << 10

// shortened returns an error of the server without what makes it long: statements, rows and stacks. Its code has to be seen.
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
