package command_test

import (
	"context"
	"io"
	"strings"
	"syscall"
	"testing"

	"github.com/idem-go/idem/cmd/idem/internal/command"
)

// typed makes standard input a terminal with this input.
func typed(text string) func(*command.World) {
	return func(w *command.World) {
		w.Stdin, w.InIsTerminal, w.ErrIsTerminal = strings.NewReader(text), true, true
	}
}

func (d *desk) count() (n int) {
	d.t.Helper()
	if err := d.pool.QueryRow(d.t.Context(), "SELECT count(*) FROM idem.records").Scan(&n); err != nil {
		d.t.Fatal(err)
	}
	return n
}

func TestNothingIsChangedUntilSomebodyAgrees(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.keep()
	before := d.count()
	evict := []string{"evict", scope, placed, "--execution", placedID}
	ctx := context.Background()
	for answer, code := range map[string]int{"": 5, "\n": 5, "n\n": 5, "yep\n": 5, "yes please\n": 5} {
		d.call(ctx, typed(answer), evict...).want(t, code, "its effect is committed and stays", "nothing was changed")
	}
	d.idem(evict...).want(t, 5, "--yes")
	d.idem(append(evict, "--dry-run")...).want(t, 0)
	if got := d.count(); got != before {
		t.Fatalf("%d records, there were %d", got, before)
	}
	d.call(ctx, typed("y\n"), evict...).want(t, 0, "Go on?", "deleted")
	if got := d.count(); got != before-1 {
		t.Errorf("%d records, there were %d", got, before)
	}
	d.idem(append(evict, "--yes")...).want(t, 4, "no record")
}

// A signal ends the command while it waits for an answer.
func TestSignalEndsTheQuestion(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.keep()
	before := d.count()
	silent, typist := io.Pipe()
	defer typist.Close()
	ctx, cancel := context.WithCancelCause(context.Background())
	asked := &notifying{until: "[y/N]", done: func() { cancel(command.Interrupted{Signal: syscall.SIGINT}) }}
	got := d.call(ctx, func(w *command.World) {
		w.Stdin, w.InIsTerminal, w.Stderr = silent, true, asked
	}, "evict", scope, placed, "--execution", placedID)
	if got.code != 130 || d.count() != before {
		t.Errorf("exit code %d, %d records of %d, said %q", got.code, d.count(), before, asked.text.String())
	}
}

// notifying is a writer that calls done at the first write.
type notifying struct {
	text  strings.Builder
	until string
	done  func()
}

func (n *notifying) Write(p []byte) (int, error) {
	n.text.Write(p)
	if strings.Contains(n.text.String(), n.until) {
		n.done()
	}
	return len(p), nil
}

// Another execution may have claimed the key since the record was read.
func TestOnlyTheRecordThatWasNamedIsEvicted(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.keep()
	before := d.count()
	change := func(w *command.World) {
		typed("")(w)
		w.Stdin = readerFunc(func(p []byte) (int, error) {
			d.exec("UPDATE idem.records SET execution_id = gen_random_uuid() WHERE key = $1", placed)
			return copy(p, "y\n"), io.EOF
		})
	}
	got := d.call(context.Background(), change, "evict", scope, placed, "--execution", placedID)
	if got.code != 4 || !strings.Contains(got.stderr, "changed meanwhile") || d.count() != before {
		t.Errorf("%+v", got)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
