package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The test binary runs as tally if this variable is set.
const runAsTally = "TALLY_TEST_RUN_AS_TALLY"

func TestMain(m *testing.M) {
	if os.Getenv(runAsTally) != "" {
		main()
	}
	os.Exit(m.Run())
}

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
		flags             []string
		code              int
		want, never       []string
		last              string
	}{
		{name: "all pass", in: pass + events("empty", "start", "skip"), last: "1 passed, 0 failed, 0 skipped",
			want: []string{"slowest tests:\n     1.5s  p.TestA\n"}, never: []string{"chatter", "failures"}},
		{name: "verbose", in: pass, flags: []string{"-v"}, last: "1 passed, 0 failed, 0 skipped", want: []string{"chatter\n"}},
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
			args := test.flags
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

func TestTally_UsageErrors(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"."}, {"--", "true"}, {".", "--"}, {"-together", "0", ".", "--", "true"},
		{"-allow", file(t, "p.TestC\n"), ".", "--", "true"}, {"-allow", "/nowhere", ".", "--", "true"},
	} {
		if code, err := tally(&bytes.Buffer{}, args, nil); code != 2 || err == nil {
			t.Errorf("%q: exit code %d, error %v; want 2 and an error", args, code, err)
		}
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

func TestTally_TestsModulesAtTheSameTime(t *testing.T) {
	t.Parallel()
	a, b := t.TempDir(), t.TempDir()
	const meet = `touch here; until [ -e "$1/here" ] && [ -e "$2/here" ]; do sleep 0.01; done; cat "$0"`
	got := checkTally(t, 0, "-together", "2", a, b, "--", "sh", "-c", meet, file(t, events("p", "pass TestA")), a, b)
	if !strings.HasSuffix(got, "2 passed, 0 failed, 0 skipped\n") {
		t.Errorf("got %s", got)
	}
}

func TestTally_ModuleWithoutATest(t *testing.T) {
	t.Parallel()
	with, without := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(with, "events"), []byte(events("p", "pass TestA")), 0o600); err != nil {
		t.Fatal(err)
	}
	const script = `[ ! -e events ] || cat events`
	checkTally(t, 0, with, without, "--", "sh", "-c", script)
	checkTally(t, 1, without, "--", "sh", "-c", script)
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

func TestModule_ShortName(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ dir, path, pkg, want string }{
		{".", "example.com/x", "example.com/x", "x"},
		{".", "example.com/x", "example.com/x/a/b", "a/b"},
		{"tools", "example.com/x/tools", "example.com/x/tools", "tools"},
		{"tools", "example.com/x/tools", "example.com/x/tools/a", "tools/a"},
		{".", "example.com/x", "example.com/xy", "example.com/xy"},
		{".", "", "example.com/x", "example.com/x"},
	} {
		if got := (&module{dir: test.dir, path: test.path}).shortName(test.pkg); got != test.want {
			t.Errorf("%s in %s: got %q, want %q", test.pkg, test.dir, got, test.want)
		}
	}
}

func TestResults_StatusLine(t *testing.T) {
	t.Parallel()
	m := &module{dir: "lab"}
	r := &results{screen: newScreen(&bytes.Buffer{}), open: map[string]*test{}, began: time.Now().Add(-151 * time.Second)}
	for line := range strings.Lines(events("p", "run TestPaused", "pause TestPaused", "run TestParent", "run TestParent/part",
		"run TestEnds", "pass TestEnds")) {
		r.take(m, []byte(line))
	}
	if got, want := r.statusLine("lab"), "lab  passed 1  failed 0  skipped 0  2m31s"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, running := range r.open {
		running.since = running.since.Add(-time.Minute)
	}
	r.open["p.TestPaused"].since = time.Time{}
	if got, want := r.statusLine("lab"), "lab  passed 1  failed 0  skipped 0  2m31s  p.TestParent/part 1m0s"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestScreen_StatusLine(t *testing.T) {
	var out bytes.Buffer
	s := newScreen(&out)
	s.refresh("early")
	s.status = s.status.Add(-statusInterval)
	s.refresh("late")
	s.refresh("too soon")
	s.printStatus("a module ended")
	if got, want := out.String(), "late\na module ended\n"; got != want {
		t.Errorf("without a terminal: got %q, want %q", got, want)
	}

	out.Reset()
	t.Setenv("COLUMNS", "6")
	s.terminal, _ = os.Open(os.DevNull) // has no width
	s.refresh("status line")
	s.print("partial")
	s.refresh("status line")
	s.print(" line\n")
	s.printStatus("a module ended")
	if got, want := out.String(), eraseLine+"statu"+eraseLine+"partial line\n"; got != want {
		t.Errorf("on a terminal: got %q, want %q", got, want)
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
	got = checkTally(t, 0, "-v", dir, "--", "go", "test", "-json", "-run", "Passes|Skips", "./...")
	if !strings.Contains(got, ": chatter\n") || !strings.HasSuffix(got, "\n1 passed, 0 failed, 1 skipped\n") {
		t.Errorf("got %s", got)
	}
}

func TestTally_KillsWhatATestLeavesBehind(t *testing.T) {
	t.Parallel()
	pids := filepath.Join(t.TempDir(), "pids")
	checkTally(t, 0, t.TempDir(), "--", "sh", "-c", `sleep 1000 >/dev/null 2>&1 & echo $! >"$1"; cat "$0"`,
		file(t, events("p", "pass TestA")), pids)
	checkGone(t, pids)
}

func TestTally_InterruptEndsAllProcesses(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		signal syscall.Signal
		trap   string
		atMost time.Duration
	}{
		{"SIGINT", syscall.SIGINT, "", grace},
		{"SIGTERM", syscall.SIGTERM, "", grace},
		{"child cleans up", syscall.SIGINT, "trap 'sleep 0.5; touch clean; exit' INT; ", grace},
		{"child ignores it", syscall.SIGINT, "trap '' INT TERM; ", 2 * grace},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			dir := goModule(t, fmt.Sprintf(`
func TestBefore(t *testing.T) {}
func TestHangs(t *testing.T) {
	sh := exec.Command("sh", "-c", %q)
	if err := sh.Start(); err != nil { t.Fatal(err) }
	pids := fmt.Sprintf("%%d\n%%d\n%%d\n", os.Getppid(), os.Getpid(), sh.Process.Pid)
	if err := os.WriteFile("pids.new", []byte(pids), 0o600); err != nil { t.Fatal(err) }
	if err := os.Rename("pids.new", "pids"); err != nil { t.Fatal(err) }
	sh.Wait()
	select {}
}`, test.trap+"while :; do sleep 1; done"))
			cmd := exec.Command(os.Args[0], dir, dir, "--", "go", "test", "-json", "./...")
			cmd.Env = append(os.Environ(), runAsTally+"=1")
			var out bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &out
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			pids := filepath.Join(dir, "pids")
			for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
				if _, err := os.Stat(pids); err == nil {
					break
				}
				if time.Now().After(deadline) {
					cmd.Process.Kill()
					t.Fatal("the test did not start")
				}
			}
			time.Sleep(100 * time.Millisecond) // until tally has read the events
			began := time.Now()
			cmd.Process.Signal(test.signal)
			cmd.Wait()
			if took := time.Since(began); took > test.atMost {
				t.Errorf("tally ended after %v, want at most %v", took, test.atMost)
			}
			if code := cmd.ProcessState.ExitCode(); code != 130 {
				t.Errorf("the exit code is %d, want 130", code)
			}
			if got := out.String(); !strings.Contains(got, "while these tests ran:\n") || !strings.Contains(got, ".TestHangs\n") ||
				strings.Contains(got, "FAIL") || !strings.HasSuffix(got, "\n1 passed, 0 failed, 0 skipped\n") {
				t.Errorf("got %s", got)
			}
			checkGone(t, pids)
			if _, err := os.Stat(filepath.Join(dir, "clean")); strings.Contains(test.trap, "clean") && err != nil {
				t.Error("the child was killed while it cleaned up")
			}
		})
	}
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
