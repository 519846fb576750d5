package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// event is one line of the output of "go test -json".
type event struct {
	Action     string
	Package    string
	ImportPath string // set for build events: the package that is built, or "package [variant]"
	Test       string // empty for an event about the whole package
	Output     string
	Elapsed    float64

	FailedBuild string // set if a package failed because it, or a package that it imports, does not build
}

// test is a test that has not ended. If name is empty, it stands for a package that has not ended.
type test struct {
	module *module
	pkg    string
	name   string
	output strings.Builder
	paused bool // the test has called t.Parallel and waits for its turn
	failed bool // of a test: a subtest has failed; of a package: one of its tests or its build has failed
}

func (t *test) String() string {
	if t.name == "" {
		return t.module.shortName(t.pkg)
	}
	return t.module.shortName(t.pkg) + "." + t.name
}

// results collects the events of all modules. It prints each failure when it happens.
type results struct {
	modules []*module
	allowed map[string]string // the tests that may be skipped, with reasons; nil if every test may be skipped
	began   time.Time

	mu                      sync.Mutex // guards the fields below and the modules
	out                     io.Writer
	open                    map[string]*test // tests and packages that have not ended, by the result of the function id
	passed, failed, skipped int
	failures                []failure
	skips                   map[string][]string // names of skipped tests by reason
	slow                    []timed             // durations of all tests that are not subtests
	kill                    time.Time           // time at which remaining processes are killed; zero unless interrupted
}

type failure struct{ title, output string }

type timed struct {
	name string
	took time.Duration
}

// race is the text with which a report of the race detector begins.
const race = "WARNING: DATA RACE"

// frame matches the lines that the testing package itself prints before and after the output of a
// test. progress matches the lines among them that only report progress and are not shown.
var (
	frame    = regexp.MustCompile(`(?m)^\s*(=== (RUN|PAUSE|CONT|NAME) |--- (PASS|FAIL|SKIP): ).*\n?`)
	progress = regexp.MustCompile(`(?m)^=== (RUN|PAUSE|CONT|NAME) .*\n?`)
)

// take processes one line of the standard output of m's command.
func (r *results) take(m *module, line []byte) {
	var e event
	if json.Unmarshal(line, &e) != nil || e.Action == "" {
		r.takeOther(m, line)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.kill.IsZero() { // events after an interrupt are not results
		r.add(m, e)
	}
}

// takeOther stores a line that is not an event. The line is shown if the command fails and no event
// explains the failure.
func (r *results) takeOther(m *module, line []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m.other.Write(line)
}

// add processes one event. The caller must have locked r.mu.
func (r *results) add(m *module, e event) {
	if e.ImportPath != "" {
		e.Package, _, _ = strings.Cut(e.ImportPath, " ")
	}
	t := r.find(m, e.Package, e.Test)
	switch e.Action {
	case "cont":
		t.paused = false
	case "pause":
		t.paused = true
	case "output", "build-output":
		t.output.WriteString(e.Output)
	case "build-fail":
		if !t.failed { // report once: a package and its test variant fail with the same errors
			t.failed = true
			r.fail(m, "FAIL "+t.String()+": does not build", t.output.String())
		}
	case "pass", "fail", "skip":
		delete(r.open, id(e.Package, e.Test))
		if e.Test == "" {
			r.endPackage(t, e)
		} else {
			r.endTest(t, e)
		}
	}
}

// id returns the key in results.open of the test called name. If name is empty, it returns the key
// of the package.
func id(pkg, name string) string { return pkg + "." + name }

// find returns the open test called name, or the open package if name is empty. It creates the
// entry if it is missing.
func (r *results) find(m *module, pkg, name string) *test {
	t := r.open[id(pkg, name)]
	if t == nil {
		t = &test{module: m, pkg: pkg, name: name}
		r.open[id(pkg, name)] = t
	}
	return t
}

func (r *results) endTest(t *test, e event) {
	t.module.tests++
	took := time.Duration(e.Elapsed * float64(time.Second))
	if !strings.Contains(t.name, "/") && took > 0 {
		r.slow = append(r.slow, timed{t.String(), took})
	}
	output := t.output.String()
	raced := strings.Contains(output, race)
	switch e.Action {
	case "pass":
		r.passed++
	case "skip":
		r.skip(t)
	case "fail":
		r.markFailed(t)
		if t.failed && !raced && frame.ReplaceAllString(output, "") == "" { // the subtests have already reported the failure
			r.failed++
			t.module.failed++
			return
		}
		r.fail(t.module, "FAIL "+t.String(), output)
		return
	}
	if raced { // for a race between two tests, go test reports the package as failed, but no test
		r.markFailed(t)
		r.fail(t.module, "FAIL "+t.String()+": data race", output)
	}
}

// markFailed marks the package and the parent tests of the failed test t as failed.
func (r *results) markFailed(t *test) {
	for name := t.name; name != ""; {
		name = name[:max(strings.LastIndexByte(name, '/'), 0)]
		r.find(t.module, t.pkg, name).failed = true
	}
}

// reason returns the first line that a skipped test printed, without the file name and line number
// at its beginning.
func reason(output string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(frame.ReplaceAllString(output, "")), "\n")
	return cmp.Or(position.ReplaceAllString(line, ""), "no reason given")
}

// position matches the file name and line number at the beginning of a line that a test logs.
var position = regexp.MustCompile(`^\S+\.go:\d+: `)

// skip counts a skipped test. The test counts as failed if the flag -allow is given and its file
// does not list the test.
func (r *results) skip(t *test) {
	why := reason(t.output.String())
	if r.allowed != nil && r.allowed[t.pkg+"."+t.name] == "" && r.allowed[t.String()] == "" {
		r.fail(t.module, "FAIL "+t.String()+": skipped, which -allow does not list: "+why, "")
		return
	}
	r.skipped++
	r.skips[why] = append(r.skips[why], t.String())
}

// endPackage reports the tests that have not ended although their process has, and a failure of the
// package that no test explains.
func (r *results) endPackage(pkg *test, e event) {
	m := pkg.module
	// Tests of this package that are still open will never end, because their process has ended.
	// They are failures only if the package has failed.
	var cut []*test
	for id, t := range r.open {
		if t.pkg == pkg.pkg && t.name != "" {
			delete(r.open, id)
			if !t.paused { // a paused test was not running when the process ended, so it was not cut off
				cut = append(cut, t)
			}
		}
	}
	if e.Action != "fail" {
		return
	}
	slices.SortFunc(cut, func(a, b *test) int { return strings.Compare(a.name, b.name) })
	for i, t := range cut {
		m.tests++
		if i == len(cut)-1 {
			t.output.WriteString(pkg.output.String()) // the package's output may say why the process ended
		}
		r.fail(m, "FAIL "+t.String()+": cut off", t.output.String())
	}
	// If no test failed or was cut off and no build failed, the package itself is reported as the
	// failure. This happens, for example, if TestMain calls os.Exit(1).
	explained := pkg.failed || e.FailedBuild != "" || len(cut) > 0
	if output := pkg.output.String(); !explained || len(cut) == 0 && strings.Contains(output, race) {
		r.fail(m, "FAIL "+pkg.String(), output)
	}
}

// fail counts a failure and prints its title. The summary shows its output.
func (r *results) fail(m *module, title, output string) {
	r.failed++
	m.failed++
	r.failures = append(r.failures, failure{title, progress.ReplaceAllString(output, "")})
	fmt.Fprintln(r.out, title)
}

// end records the end of a module's command. If the command failed and the module has no failure
// yet, end records the error of the command as a failure.
func (r *results) end(m *module, took time.Duration, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m.took = took
	if err != nil && m.failed == 0 && r.kill.IsZero() {
		r.fail(m, fmt.Sprintf("FAIL %s: %s: %v", m.dir, strings.Join(m.command, " "), err), m.other.String())
	}
	fmt.Fprintf(r.out, "%s: passed %d, failed %d, skipped %d after %v\n", m.dir, r.passed, r.failed, r.skipped, round(time.Since(r.began)))
}

// interrupt stops the collection of results and sets the time at which remaining processes are
// killed.
func (r *results) interrupt() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kill = time.Now().Add(grace)
	fmt.Fprintf(r.out, "interrupted: tests have %v to end\n", grace)
}

// killAt returns the time at which tally kills processes that the tests have left running. Without
// an interrupt, it returns the zero time, which means at once.
func (r *results) killAt() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.kill
}
