package command_test

import (
	"context"
	"io"
	"strings"
	"syscall"
	"testing"

	"github.com/idem-go/idem/cmd/idem/internal/command"
)

// typed simulates a terminal at which a person types text.
func typed(text string) func(*command.World) {
	return func(w *command.World) {
		w.Stdin, w.InIsTerminal, w.ErrIsTerminal = strings.NewReader(text), true, true
	}
}

func (d *harness) count() (n int) {
	d.t.Helper()
	if err := d.pool.QueryRow(d.t.Context(), "SELECT count(*) FROM idem.records").Scan(&n); err != nil {
		d.t.Fatal(err)
	}
	return n
}

// contents returns what the tables hold that commands change.
func (d *harness) contents() string {
	d.t.Helper()
	var text string
	err := d.pool.QueryRow(d.t.Context(), `SELECT concat((SELECT array_agg(r ORDER BY r.key) FROM idem.records r), (SELECT array_agg(o ORDER BY o.id) FROM idem.operations o),
		(SELECT array_agg(l ORDER BY l) FROM idem.dead_letters l), (SELECT array_agg(t ORDER BY t) FROM idem.relay_topics t), (SELECT count(*) FROM idem.audit))`).Scan(&text)
	if err != nil {
		d.t.Fatal(err)
	}
	return text
}

func TestChange_NeedsConsent(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	d.keepAll()
	before := d.contents()
	for _, line := range []string{
		"evict SCOPE " + placed + " --execution " + placedID, "operation retry " + parkedID, "operation cancel " + waitsID, "operation retry --all --older 1h",
		"operation resolve " + parkedID + " --reason INC-7 --happened --value null", "outbox forget invoices",
		"dead redrive " + deadOutID, "dead drop " + deadOutID, "dead redrive --all --side inbox", "dead drop --all --side inbox",
	} {
		for _, answer := range []string{"", "n\n", "yes please\n"} {
			d.call(context.Background(), typed(answer), d.line(line)...).want(t, 5, "nothing was changed")
		}
		d.idem(d.line(line)...).want(t, 5, "--yes")
		if !strings.Contains(line, "resolve") && !strings.Contains(line, "forget") {
			d.idem(append(d.line(line), "--yes", "--dry-run")...).want(t, 0, "this ")
		}
		if d.contents() != before {
			t.Fatalf("%s changed something", line)
		}
		d.call(context.Background(), typed("y\n"), d.line(line)...).want(t, 0, "Continue?")
		if d.contents() == before {
			t.Errorf("%s changed nothing", line)
		}
		d.keepAll()
		before = d.contents()
	}
}

// While a command waits for the answer, another process changes the object.
func TestChange_LeavesWhatHasChangedMeanwhile(t *testing.T) {
	t.Parallel()
	for line, test := range map[string]struct {
		sql  string
		code int
		says string
	}{
		"evict SCOPE " + placed + " --execution " + placedID:               {"UPDATE idem.records SET execution_id = gen_random_uuid()", 4, "has changed meanwhile"},
		"dead drop " + deadOutID:                                           {"UPDATE idem.dead_letters SET died_at = now()", 4, "has changed since"},
		"operation resolve " + parkedID + " --reason INC-7 --not-happened": {"UPDATE idem.operations SET epoch = epoch + 1", 5, "has changed since"},
		"operation retry " + parkedID:                                      {"UPDATE idem.operations SET state = 'running'", 5, "has changed since"},
	} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			d := newHarness(t)
			d.keepAll()
			changed := ""
			got := d.call(context.Background(), func(w *command.World) {
				typed("")(w)
				w.Stdin = readerFunc(func(p []byte) (int, error) {
					d.exec(test.sql)
					changed = d.contents()
					return copy(p, "y\n"), io.EOF
				})
			}, d.line(line)...)
			got.want(t, test.code, test.says)
			if d.contents() != changed {
				t.Error("a read changed something")
			}
		})
	}
}

// A signal ends the command while it waits for an answer.
func TestSignal_EndsTheQuestion(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
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
		t.Errorf("exit code %d, %d records of %d, printed %q", got.code, d.count(), before, asked.text.String())
	}
}

// notifying is a writer that calls done once the output contains until.
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

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
