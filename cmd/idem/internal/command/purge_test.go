package command_test

import (
	"context"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/idem-go/idem/cmd/idem/internal/command"
)

func TestPurge_AsksBeforeItDeletes(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	d.keep()
	before := d.count()
	dry := d.idem("purge", "--dry-run")
	dry.want(t, 0, "WOULD DELETE", "finished")
	if output := collapseSpaces(dry.stdout); !strings.Contains(output, "TABLE WOULD DELETE KEPT SKIPPED PAGES TOOK ENDED\nrecords 1 4 0 1 ") {
		t.Errorf("printed:\n%s", dry.stdout)
	}
	d.idem("purge").want(t, 5, "deletes rows that expired more than 1 h ago", "--yes")
	if got := d.count(); got != before {
		t.Fatalf("%d records, there were %d", got, before)
	}
	d.idem("purge", "--yes", "--json").want(t, 0, `"dry_run": false`, `"deleted": 1`, `"finished": true`, `"ended": "finished"`)
	if got := d.count(); got != before-1 {
		t.Errorf("%d records, there were %d", got, before)
	}
	d.idem("show", scope, forgotten).want(t, 4)
	d.idem("purge", "--share", "2").want(t, 2, "--share")
}

// collapseSpaces collapses the spaces between the columns of a table.
func collapseSpaces(text string) string { return regexp.MustCompile(` +`).ReplaceAllString(text, " ") }

// An interrupted purge keeps its deletions and reports them. The next purge completes the sweep.
func TestPurge_InterruptKeepsFinishedPortions(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	d.exec(`INSERT INTO idem.records (scope, key, hash, execution_id, created_at, expires_at, state, body)
		SELECT 's', n::text, '', gen_random_uuid(), now() - interval '2 d', now() - interval '1 d', 'completed', convert_to(repeat(md5(n::text), 50), 'UTF8')
		FROM generate_series(1, 8000) n`)
	ctx, cancel := context.WithCancelCause(context.Background())
	watched := &notifying{until: " deleted", done: func() { cancel(command.Interrupted{Signal: syscall.SIGINT}) }}
	got := d.call(ctx, func(w *command.World) { w.Stderr, w.ErrIsTerminal = watched, true }, "purge", "--yes", "--share", "0.01")
	rest := d.count()
	if got.code != 130 || rest == 0 || rest == 8000 || !strings.Contains(got.stdout, "stopped") {
		t.Errorf("exit code %d, %d records left, printed %q", got.code, rest, got.stdout)
	}
	if output := watched.text.String(); !strings.HasSuffix(output, "idem: interrupted\n") {
		t.Errorf("printed %q", output)
	}
	d.idem("purge", "--yes", "--share", "1").want(t, 0, "finished")
	if left := d.count(); left != 0 {
		t.Errorf("%d records left", left)
	}
}
