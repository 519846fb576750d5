package command_test

import (
	"bytes"
	"context"
	"encoding/json"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/idem-go/idem/cmd/idem/internal/command"
	"github.com/idem-go/idem/cmd/idem/internal/doctor"
)

// ofTheServer replaces values that depend on the server: sizes, and the time of the last analysis.
var ofTheServer = []struct {
	find *regexp.Regexp
	put  string
}{
	{regexp.MustCompile(`\d+s ago`), "0s ago"},
	{regexp.MustCompile(`\d+(\.\d+)? [kM]?B`), "0 B"},
	{regexp.MustCompile(`(_bytes|_seconds)": \d+`), "$1\": 0"},
	// The value is two days and half an hour, plus the run time of the test.
	{regexp.MustCompile(`"value": 1746\d\d(\.\d+)?`), `"value": 174600`},
	{regexp.MustCompile(`("value": \d+)\.\d+`), "$1"},
	{regexp.MustCompile(`"at": "[^"]*"`), `"at": ""`},
}

func TestStats_MatchGoldenFiles(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	d.exec("ALTER TABLE idem.records SET (autovacuum_enabled = off)")
	d.exec(`INSERT INTO idem.records (scope, key, hash, execution_id, created_at, expires_at, state, body)
		SELECT 's', n::text, '', gen_random_uuid(), now() - interval '3 d', now() - interval '2 d 30 min' + interval '4 d' * (n > 100)::int, 'completed', 'ok'
		FROM generate_series(1, 300) n`)
	d.exec("ANALYZE idem.records")
	for name, args := range map[string][]string{
		"stats.txt": {"stats"}, "stats.json": {"stats", "--json"},
		"stats-exact.txt": {"stats", "--exact"}, "stats-exact.json": {"stats", "--exact", "--json"},
	} {
		got := d.idem(args...)
		got.want(t, 0)
		text := got.stdout
		for _, m := range ofTheServer {
			text = m.find.ReplaceAllString(text, m.put)
		}
		compareGolden(t, name, text)
	}
}

// watch --json prints one line for each reading, until it is interrupted.
func TestWatch_WritesALinePerReadingInJSON(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	ctx, cancel := context.WithCancelCause(context.Background())
	var lines notifyingLines
	lines.done = func() { cancel(command.Interrupted{Signal: syscall.SIGINT}) }
	got := d.call(ctx, func(w *command.World) { w.Stdout = &lines }, "watch", "--json", "--every", "100ms")
	if got.code != 130 {
		t.Errorf("%+v", got)
	}
	for line := range strings.Lines(lines.text.String()) {
		var figures struct{ Records struct{ Quality string } }
		if err := json.Unmarshal([]byte(line), &figures); err != nil || figures.Records.Quality == "" {
			t.Errorf("%v: %s", err, line)
		}
	}
}

// notifyingLines is a writer that calls done after three lines.
type notifyingLines struct {
	text bytes.Buffer
	done func()
}

func (n *notifyingLines) Write(p []byte) (int, error) {
	if n.text.Write(p); bytes.Count(n.text.Bytes(), []byte("\n")) == 3 {
		n.done()
	}
	return len(p), nil
}

// The exit code of doctor says whether it found something.
func TestDoctor_ExitCodeReportsFindings(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	d.idem("doctor").want(t, 3, "durability", "fsync = on", "0 could not be checked")
	d.idem("doctor", "--json").want(t, 3, `"problems": `)
	d.idem("doctor", "--all").want(t, 3, "ok       primary")
}

func TestDoctor_ExitCodeReportsUncheckedParts(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		levels []doctor.Level
		want   int
	}{
		{nil, 0}, {[]doctor.Level{doctor.Note}, 0}, {[]doctor.Level{doctor.Note, doctor.Unknown}, 6},
		{[]doctor.Level{doctor.Unknown, doctor.Warning}, 3}, {[]doctor.Level{doctor.Problem}, 3},
	} {
		var result doctor.Result
		for _, level := range tt.levels {
			result.Findings = append(result.Findings, doctor.Finding{Level: level, What: "something", Remedy: "something"})
		}
		var output bytes.Buffer
		if got := command.DoctorsExit(t.Context(), command.World{Stderr: &output}, []doctor.Result{result}); got != tt.want {
			t.Errorf("%v: exit code %d, want %d", tt.levels, got, tt.want)
		}
	}
}

// stuck does not walk a table above 64 MB without --scan, and does not report success then.
func TestStuck_ExitCodeReportsASkippedScan(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	d.exec("ALTER TABLE idem.records ALTER body SET STORAGE PLAIN")
	d.exec(`INSERT INTO idem.records (scope, key, hash, execution_id, created_at, expires_at, state, body)
		SELECT 's', n::text, '', gen_random_uuid(), now(), now() + '1 h', 'completed', convert_to(repeat('x', 7900), 'UTF8') FROM generate_series(1, 8300) n`)
	d.idem("stuck").want(t, 6, "was not scanned", "--scan")
	d.idem("stuck", "--scan").want(t, 0, "nothing is stuck")
}

func TestStats_DistinguishActiveAndAbandonedSweeps(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	d.idem("stats").want(t, 0, "no sweep has finished yet")
	d.exec("INSERT INTO idem.sweeps (name, started_at, progressed_at, pages, total_pages, sweeper, seen_at) VALUES ('records', now(), now(), 1, 2, gen_random_uuid(), now())")
	d.idem("stats").want(t, 0, "a sweep is in progress, 50 %")
	d.idem("stats", "--json").want(t, 0, `"under_way": true`)
	for _, left := range []string{"UPDATE idem.sweeps SET seen_at = now() - interval '1 h'", "UPDATE idem.sweeps SET sweeper = NULL, seen_at = NULL"} {
		d.exec(left)
		d.idem("stats").want(t, 0, "a sweep stopped at 50 %, and no process continues it")
		d.idem("stats", "--json").want(t, 0, `"under_way": false`)
	}
	d.exec("ALTER TABLE idem.sweeps RENAME TO away")
	d.idem("stats").want(t, 0, "purge", "unknown", "idem.sweeps is missing")
}
