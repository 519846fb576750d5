package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestTally(t *testing.T) {
	t.Parallel()
	const (
		pass = `{"Action":"pass","Package":"p","Test":"TestA"}` + "\n"
		fail = `{"Action":"output","Package":"p","Test":"TestB","Output":"want 1, got 2\n"}` + "\n" +
			`{"Action":"fail","Package":"p","Test":"TestB"}` + "\n" + `{"Action":"fail","Package":"p"}` + "\n"
		skip = `{"Action":"output","Package":"p","Test":"TestC","Output":"=== RUN   TestC\n"}` + "\n" +
			`{"Action":"output","Package":"p","Test":"TestC","Output":"    c_test.go:7: no database\n"}` + "\n" +
			`{"Action":"skip","Package":"p","Test":"TestC"}` + "\n"
		empty    = `{"Action":"skip","Package":"without/tests"}` + "\n"
		broken   = `{"ImportPath":"q","Action":"build-output","Output":"q.go:1: syntax error\n"}` + "\n" + `{"ImportPath":"q","Action":"build-fail"}` + "\n"
		raced    = `{"Action":"output","Package":"p","Test":"TestE","Output":"WARNING: DATA RACE\n"}` + "\n" + `{"Action":"pass","Package":"p","Test":"TestE"}` + "\n" + `{"Action":"fail","Package":"p"}` + "\n"
		panicked = `{"Action":"output","Package":"p","Test":"TestD","Output":"panic: oh\n"}` + "\n" + `{"Action":"fail","Package":"p"}` + "\n"
	)
	for _, test := range []struct {
		name, in, allowed string
		ok                bool
		want              []string
	}{
		{name: "all pass", in: pass + empty, ok: true, want: []string{"1 passed, 0 failed, 0 skipped\n"}},
		{name: "one fails", in: pass + fail, want: []string{"want 1, got 2", "p.TestB failed", "1 passed, 1 failed, 0 skipped\n"}},
		{name: "one is skipped", in: pass + skip, want: []string{"SKIP p.TestC: not allowed: c_test.go:7: no database", "1 passed, 0 failed, 1 skipped\n"}},
		{name: "an allowed skip", in: pass + skip, allowed: "# comment\n\np.TestC: only on Windows\n", ok: true, want: []string{"SKIP p.TestC: only on Windows", "1 passed, 0 failed, 1 skipped\n"}},
		{name: "another one allowed", in: pass + skip, allowed: "p.TestD: only on Windows\n", want: []string{"p.TestC was skipped"}},
		{name: "a package does not build", in: broken + pass, want: []string{"q.go:1: syntax error", "q does not build"}},
		{name: "a panic ends the package", in: pass + panicked, want: []string{"UNFINISHED p.TestD\npanic: oh", "p failed"}},
		{name: "a race is found behind a test", in: pass + raced, want: []string{"RACE p.TestE\nWARNING: DATA RACE", "p failed"}},
		{name: "nothing has run", in: empty, want: []string{"no test has run"}},
		{name: "other lines pass through", in: "make: hello\n" + pass + "no newline", ok: true, want: []string{"make: hello\n", "no newline"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			ok, err := tally(&out, file(t, test.allowed), false, 1, nil, []string{".", "--", "cat", file(t, test.in)})
			if err != nil || ok != test.ok {
				t.Errorf("ok is %v, %v; want %v", ok, err, test.ok)
			}
			for _, want := range test.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("does not say %q:\n%s", want, out.String())
				}
			}
		})
	}
}

func TestAllowedSkipsNeedAReason(t *testing.T) {
	t.Parallel()
	if _, err := tally(&strings.Builder{}, file(t, "p.TestC\n"), false, 1, nil, []string{".", "--", "true"}); err == nil {
		t.Error("no error")
	}
}

// file makes one that has the text.
func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const passes, skips = `{"Action":"pass","Package":"p","Test":"TestA"}` + "\n",
	`{"Action":"output","Package":"p","Test":"TestB","Output":"no database\n"}` + "\n" + `{"Action":"skip","Package":"p","Test":"TestB"}` + "\n"

func TestWithoutAListAnyTestMayBeSkipped(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	ok, err := tally(&out, "", false, 1, nil, []string{".", "--", "cat", file(t, passes+skips)})
	if err != nil || !ok || !strings.Contains(out.String(), "SKIP p.TestB: no database") {
		t.Errorf("%v, %v:\n%s", ok, err, &out)
	}
}

// One that cannot even start its tests says so in no event.
func TestCommandThatFailsIsNoSuccessWhateverItSays(t *testing.T) {
	t.Parallel()
	for _, command := range [][]string{{"sh", "-c", `cat "$0"; exit 3`, file(t, passes)}, {"/nowhere/program"}} {
		var out strings.Builder
		if ok, err := tally(&out, "", false, 1, nil, append([]string{".", "--"}, command...)); ok || err != nil || !strings.Contains(out.String(), "not a success: .: ") {
			t.Errorf("%q: %v, %v:\n%s", command, ok, err, &out)
		}
	}
}

// Each waits for what the other one has done.
func TestCommandsRunTogetherInAllDirectories(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	for _, name := range []string{"a", "b"} {
		if err := os.Mkdir(filepath.Join(top, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	const meet = `touch here; until [ -e ../a/here ] && [ -e ../b/here ]; do sleep 0.01; done; cat "$0"; echo complaint >&2`
	var out strings.Builder
	ok, err := tally(&out, "", false, 2, nil, []string{filepath.Join(top, "a"), filepath.Join(top, "b"), "--", "sh", "-c", meet, file(t, passes)})
	if err != nil || !ok || !strings.HasSuffix(out.String(), "2 passed, 0 failed, 0 skipped\n") || strings.Count(out.String(), "complaint\n") != 2 {
		t.Errorf("%v, %v:\n%s", ok, err, &out)
	}
}

func TestWhatRunsIsShownWhenNothingElseIs(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	c := newCount(&out)
	for _, line := range []string{
		`{"Action":"run","Package":"p","Test":"TestWaits"}`, `{"Action":"pause","Package":"p","Test":"TestWaits"}`,
		`{"Action":"run","Package":"p","Test":"TestHasParts"}`, `{"Action":"run","Package":"p","Test":"TestHasParts/part"}`,
		`{"Action":"run","Package":"p","Test":"TestHasPartsThatWait"}`, `{"Action":"run","Package":"p","Test":"TestHasPartsThatWait/part"}`,
		`{"Action":"pause","Package":"p","Test":"TestHasPartsThatWait/part"}`,
		`{"Action":"run","Package":"p","Test":"TestEnds"}`, `{"Action":"pass","Package":"p","Test":"TestEnds"}`,
		`{"Action":"run","Package":"q","Test":"TestPanics"}`, `{"Action":"fail","Package":"q"}`,
	} {
		c.take([]byte(line))
	}
	c.showRunning(0)
	if want := "1 passed; running:\n    p.TestHasParts/part for 0 s\n"; out.String() != want {
		t.Errorf("it says %q, want %q", out.String(), want)
	}
	for i := range mostShown {
		c.take(fmt.Appendf(nil, `{"Action":"run","Package":"p","Test":"TestMore%d"}`, i))
	}
	c.showRunning(0)
	if !strings.Contains(out.String(), "p.TestMore6 for 0 s\n    and 1 more\n") {
		t.Errorf("it shows more than that: %s", out.String())
	}
	shown := out.Len()
	c.showRunning(time.Hour)
	if out.Len() != shown {
		t.Errorf("it is never silent: %q", out.String())
	}
}

func TestVerboseShowsWhatEveryTestSays(t *testing.T) {
	t.Parallel()
	const says = `{"Action":"output","Package":"p","Test":"TestA","Output":"hello\n"}` + "\n" + passes
	for _, verbose := range []bool{false, true} {
		var out strings.Builder
		if _, err := tally(&out, "", verbose, 1, nil, []string{".", "--", "cat", file(t, says)}); err != nil || strings.Contains(out.String(), "hello") != verbose {
			t.Errorf("verbose %v: %v\n%s", verbose, err, &out)
		}
	}
}

func TestModulesWithoutConcurrencyAreTestedWithoutTheRaceDetector(t *testing.T) {
	t.Parallel()
	raced, plain := t.TempDir(), t.TempDir()
	note := `for arg; do [ "$arg" = -race ] && touch raced; done; echo '{"Action":"pass","Package":"p","Test":"T"}'`
	if ok, err := tally(&strings.Builder{}, "", false, 1, []string{plain}, []string{raced, plain, "--", "sh", "-c", note, "sh", "-race", "./..."}); !ok || err != nil {
		t.Fatal(ok, err)
	}
	for dir, want := range map[string]bool{raced: true, plain: false} {
		if _, err := os.Stat(filepath.Join(dir, "raced")); (err == nil) != want {
			t.Errorf("-race: %t, want %t", err == nil, want)
		}
	}
}
