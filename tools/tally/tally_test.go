package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// events returns "go test -json" lines. Each argument is "Action", or "Action Test", or
// "Action Test|Output".
func events(pkg string, list ...string) string {
	var text strings.Builder
	for _, e := range list {
		e, output, _ := strings.Cut(e, "|")
		action, name, _ := strings.Cut(e, " ")
		fmt.Fprintf(&text, `{"Action":%q,"Package":%q,"Test":%q,"Output":%q,"Elapsed":1.5}`+"\n", action, pkg, name, output)
	}
	return text.String()
}

func TestTally_Summary(t *testing.T) {
	t.Parallel()
	pass := events("p", "start", "run TestA", "output TestA|=== RUN   TestA\n", "output TestA|chatter\n", "pass TestA", "pass")
	skip := events("p", "run TestS", "output TestS|=== RUN   TestS\n", "output TestS|    s_test.go:7: needs tmux (package tmux)\n",
		"output TestS|    more\n", "output TestS|--- SKIP: TestS (0.00s)\n", "skip TestS")
	skips := skip
	for i := range 5 {
		skips += strings.ReplaceAll(skip, "TestS", "TestS"+strconv.Itoa(i))
	}
	build := `{"ImportPath":"q [q.test]","Action":"build-output","Output":"q.go:1: syntax error\n"}` + "\n" +
		`{"ImportPath":"q [q.test]","Action":"build-fail"}` + "\n" + `{"ImportPath":"q","Action":"build-output","Output":"again\n"}` + "\n" + `{"ImportPath":"q","Action":"build-fail"}` + "\n" +
		`{"Action":"fail","Package":"q","FailedBuild":"q [q.test]"}` + "\n"
	for _, test := range []struct {
		name, in, allowed string
		code              int
		want, never       []string
		last              string
	}{
		{name: "all pass", in: pass + events("empty", "start", "skip"), last: "1 passed, 0 failed, 0 skipped",
			want: []string{"slowest tests:\n     1.5s  p.TestA\n"}, never: []string{"chatter", "failures"}},
		{name: "failed test", in: pass + events("p", "start", "run TestB", "output TestB|=== RUN   TestB\n",
			"output TestB|want 1, got 2\n", "output TestB|--- FAIL: TestB (0.00s)\n", "fail TestB", "output|FAIL\n", "fail"),
			code: 1, last: "1 passed, 1 failed, 0 skipped",
			want: []string{"FAIL p.TestB\nwant 1, got 2\n--- FAIL: TestB"}, never: []string{"=== RUN", "FAIL p\n"}},
		{name: "failed subtest is shown without its parents", in: events("p", "run TestB", "run TestB/x", "run TestB/x/y",
			"output TestB/x/y|why\n", "output TestB/x/y|        --- FAIL: TestB/x/y (0.00s)\n", "fail TestB/x/y",
			"output TestB/x|    --- FAIL: TestB/x (0.00s)\n", "fail TestB/x", "fail TestB", "fail"),
			code: 1, last: "0 passed, 3 failed, 0 skipped",
			want: []string{"FAIL p.TestB/x/y\nwhy\n"}, never: []string{"FAIL p.TestB\n", "FAIL p.TestB/x\n"}},
		{name: "parent with output of its own", in: events("p", "run TestB", "run TestB/x", "fail TestB/x", "output TestB|also\n", "fail TestB"),
			code: 1, last: "0 passed, 2 failed, 0 skipped", want: []string{"FAIL p.TestB\nalso\n"}},
		{name: "skips are grouped", in: pass + skips, last: "1 passed, 0 failed, 6 skipped",
			want: []string{"6 skipped: needs tmux (package tmux): p.TestS, p.TestS0, p.TestS1, … and 3 more\n"}},
		{name: "skip without a reason", in: pass + events("p", "run TestS", "output TestS|--- SKIP: TestS (0.00s)\n", "skip TestS"),
			last: "1 passed, 0 failed, 1 skipped", want: []string{"1 skipped: no reason given: p.TestS\n"}},
		{name: "allowed skip", in: pass + skip, allowed: "# comment\n\np.TestS: only on Windows\n", last: "1 passed, 0 failed, 1 skipped"},
		{name: "other skip is allowed", in: pass + skip, allowed: "p.TestT: only on Windows\n", code: 1, last: "1 passed, 1 failed, 0 skipped",
			want: []string{"FAIL p.TestS: skipped, which -allow does not list: needs tmux (package tmux)\n"}},
		{name: "package does not build", in: pass + build, code: 1, last: "1 passed, 1 failed, 0 skipped",
			want: []string{"FAIL q: does not build\nq.go:1: syntax error\n"}, never: []string{"FAIL q\n"}},
		{name: "panic", in: events("p", "start", "run TestP", "pause TestP", "run TestC", "run TestD", "output TestD|panic: oh\n", "fail TestD", "fail"),
			code: 1, last: "0 passed, 2 failed, 0 skipped", want: []string{"FAIL p.TestD\npanic: oh\n", "FAIL p.TestC: cut off\n"},
			never: []string{"TestP"}},
		{name: "exit within a test", in: events("p", "start", "run TestC", "output TestC|bye\n", "output|exit status 3\n", "fail"),
			code: 1, last: "0 passed, 1 failed, 0 skipped", want: []string{"FAIL p.TestC: cut off\nbye\nexit status 3\n"}, never: []string{"FAIL p\n"}},
		{name: "race found after its test", in: events("p", "start", "run TestE", "output TestE|WARNING: DATA RACE\n", "pass TestE", "output|FAIL\n", "fail"),
			code: 1, last: "1 passed, 1 failed, 0 skipped", want: []string{"FAIL p.TestE: data race\nWARNING: DATA RACE\n"}, never: []string{"FAIL p\n"}},
		{name: "race outside of tests", in: events("p", "run TestB", "fail TestB", "output|WARNING: DATA RACE\n", "fail"),
			code: 1, last: "0 passed, 2 failed, 0 skipped", want: []string{"FAIL p\nWARNING: DATA RACE\n"}},
		{name: "package fails without a failing test", in: pass + events("p", "start", "output|no server\n", "fail"),
			code: 1, last: "1 passed, 1 failed, 0 skipped", want: []string{"FAIL p\nno server\n"}},
		{name: "no test has run", in: events("p", "start", "skip") + "a warning\n", code: 1, last: "0 passed, 1 failed, 0 skipped",
			want: []string{": no test has run\na warning\n"}},
		{name: "lines that are not events", in: "make: hello\n" + pass, last: "1 passed, 0 failed, 0 skipped", never: []string{"hello"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var args []string
			if test.allowed != "" {
				args = append(args, "-allow", file(t, test.allowed))
			}
			got := checkTally(t, test.code, append(args, t.TempDir(), "--", "cat", file(t, test.in))...)
			for _, want := range test.want {
				if !strings.Contains(got, want) {
					t.Errorf("the output lacks %q:\n%s", want, got)
				}
			}
			for _, never := range test.never {
				if strings.Contains(got, never) {
					t.Errorf("the output contains %q:\n%s", never, got)
				}
			}
			if !strings.HasSuffix(got, "\n"+test.last+"\n") {
				t.Errorf("the last line is not %q:\n%s", test.last, got)
			}
		})
	}
}

func TestTally_FailsIfTheCommandFails(t *testing.T) {
	t.Parallel()
	passes := file(t, events("p", "run TestA", "pass TestA", "pass"))
	got := checkTally(t, 1, t.TempDir(), "--", "sh", "-c", `cat "$0"; printf 'broken flag' >&2; exit 3`, passes)
	if !strings.Contains(got, "exit status 3\nbroken flag\n") || !strings.HasSuffix(got, "1 passed, 1 failed, 0 skipped\n") {
		t.Errorf("got %s", got)
	}
	checkTally(t, 1, t.TempDir(), "--", "/nowhere/program")
}

func TestNewModule_Command(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ arg, command, want string }{
		{".", "go test -json -race ./...", "go test -json -race ./..."},
		{"./tools/", "go test -json -race ./...", "go test -json -race ./..."},
		{".=./a,./b", "go test -json -race -timeout 60m ./...", "go test -json -race -timeout 60m ./a ./b"},
		{".=./a", "go test -json -run TestDo ./... ./x", "go test -json -run TestDo ./a"},
		{".=./a", "go test -vet=off -run . ./x -calls 7", "go test -vet=off -run . ./a -calls 7"},
		{".=./a", "go test -json", "go test -json ./a"},
		{"tools=./a", "go test -v -race ./...", "go test -v ./a"},
	} {
		m := newModule(test.arg, strings.Fields(test.command), []string{"tools"})
		if got := strings.Join(m.command, " "); got != test.want {
			t.Errorf("%s with %q: got %q, want %q", test.arg, test.command, got, test.want)
		}
	}
}

func TestTally_RunsGoTest(t *testing.T) {
	t.Parallel()
	dir := goModule(t, `
func TestPasses(t *testing.T) { t.Log("chatter") }
func TestFails(t *testing.T)  { t.Error("want 1, got 2") }
func TestSkips(t *testing.T)  { t.Skip("needs tmux (package tmux)") }
func TestPanics(t *testing.T) { panic("oh") }`)
	got := checkTally(t, 1, dir+"=./...", "--", "go", "test", "-json", "./nowhere")
	for _, want := range []string{
		".TestFails\n    some_test.go:", ": want 1, got 2\n", "1 skipped: needs tmux (package tmux): ", ".TestPanics\n", "panic: oh",
		"slowest modules:", "\n1 passed, 2 failed, 1 skipped\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the output lacks %q:\n%s", want, got)
		}
	}
}

func TestTally_KillsWhatATestLeavesBehind(t *testing.T) {
	t.Parallel()
	pids := filepath.Join(t.TempDir(), "pids")
	checkTally(t, 0, t.TempDir(), "--", "sh", "-c", `sleep 1000 >/dev/null 2>&1 & echo $! >"$1"; cat "$0"`,
		file(t, events("p", "pass TestA")), pids)
	checkGone(t, pids)
}

// checkTally runs tally, checks its exit code, and returns its output.
func checkTally(t *testing.T, code int, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	got, err := tally(&out, args, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got != code {
		t.Errorf("the exit code is %d, want %d:\n%s", got, code, &out)
	}
	return out.String()
}

// checkGone checks that no process in the file is running.
func checkGone(t *testing.T, path string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range strings.Fields(string(text)) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(5 * time.Second); syscall.Kill(pid, 0) == nil; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) { // a killed process exists until its new parent has reaped it
				t.Errorf("process %d is left", pid)
				syscall.Kill(pid, syscall.SIGKILL)
				break
			}
		}
	}
}

// file returns the path of a new file with the text.
func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// goModule returns the directory of a Go module with these tests.
func goModule(t *testing.T, tests string) string {
	t.Helper()
	dir := t.TempDir()
	imports := []string{"testing"}
	for _, name := range []string{"fmt", "os", "os/exec"} {
		if strings.Contains(tests, filepath.Base(name)+".") {
			imports = append(imports, name)
		}
	}
	slices.Sort(imports)
	text := "package some\n\nimport (\"" + strings.Join(imports, "\"; \"") + "\")\n" + tests
	for name, text := range map[string]string{"go.mod": "module example.com/some\n\ngo 1.26\n", "some_test.go": text} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
