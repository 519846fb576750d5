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

// event is one line of "go test -json".
type event struct {
	Action     string
	Package    string
	ImportPath string // what a build event is about: a package, or "package [variant]"
	Test       string // empty for an event of the package
	Output     string
	Elapsed    float64

	FailedBuild string // set if a package failed because a build failed
}

// test is a test that has not ended. If name is empty, it is a package that has not ended.
type test struct {
	module *module
	pkg    string
	name   string
	output strings.Builder
	paused bool // it waits for parallel tests in front of it
	failed bool // a subtest failed, or a test or the build of the package
}

func (t *test) String() string {
	if t.name == "" {
		return t.module.shortName(t.pkg)
	}
	return t.module.shortName(t.pkg) + "." + t.name
}

// results collects the events of all modules. It prints failures as they happen.
type results struct {
	modules []*module
	allowed map[string]string // reasons by test; nil if every test may be skipped
	began   time.Time

	mu                      sync.Mutex // guards the fields below and the modules
	out                     io.Writer
	open                    map[string]*test // tests and packages that have not ended, by id
	passed, failed, skipped int
	failures                []failure
	skips                   map[string][]string // names of tests by reason
	slow                    []timed             // top-level tests
	kill                    time.Time           // zero unless interrupted
}

type failure struct{ title, output string }

type timed struct {
	name string
	took time.Duration
}

// race is how a report of the race detector begins.
const race = "WARNING: DATA RACE"

// frame matches a line that the testing package prints around the output of a test. progress
// matches those of them that are not worth showing.
var (
	frame    = regexp.MustCompile(`(?m)^\s*(=== (RUN|PAUSE|CONT|NAME) |--- (PASS|FAIL|SKIP): ).*\n?`)
	progress = regexp.MustCompile(`(?m)^=== (RUN|PAUSE|CONT|NAME) .*\n?`)
)

// take processes one line of a command's standard output.
func (r *results) take(m *module, line []byte) {
	var e event
	if json.Unmarshal(line, &e) != nil || e.Action == "" {
		r.takeOther(m, line)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.kill.IsZero() { // what tests do after an interrupt is not a result
		r.add(m, e)
	}
}

// takeOther processes a line that is not an event. The line is shown if the command fails without
// another explanation.
func (r *results) takeOther(m *module, line []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m.other.Write(line)
}

// add processes one event.
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
		if !t.failed { // a package and its test variant fail with the same errors
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

// id returns the key of a test, or of a package if name is empty, in results.open.
func id(pkg, name string) string { return pkg + "." + name }

// find returns the open test, or the open package if name is empty. It creates a missing one.
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
		if t.failed && !raced && frame.ReplaceAllString(output, "") == "" { // the subtests have reported why
			r.failed++
			t.module.failed++
			return
		}
		r.fail(t.module, "FAIL "+t.String(), output)
		return
	}
	if raced { // a race fails the package; it fails no test if it happens between two tests
		r.markFailed(t)
		r.fail(t.module, "FAIL "+t.String()+": data race", output)
	}
}

// markFailed marks the package of a failed test and the tests above it.
func (r *results) markFailed(t *test) {
	for name := t.name; name != ""; {
		name = name[:max(strings.LastIndexByte(name, '/'), 0)]
		r.find(t.module, t.pkg, name).failed = true
	}
}

// reason returns the first line that a skipped test printed, without its position in the source.
func reason(output string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(frame.ReplaceAllString(output, "")), "\n")
	return cmp.Or(position.ReplaceAllString(line, ""), "no reason given")
}

// position matches the position at the beginning of a line that a test logs.
var position = regexp.MustCompile(`^\S+\.go:\d+: `)

// skip counts a skipped test. It counts as failed if -allow is given and does not list the test.
func (r *results) skip(t *test) {
	why := reason(t.output.String())
	if r.allowed != nil && r.allowed[t.pkg+"."+t.name] == "" && r.allowed[t.String()] == "" {
		r.fail(t.module, "FAIL "+t.String()+": skipped, which -allow does not list: "+why, "")
		return
	}
	r.skipped++
	r.skips[why] = append(r.skips[why], t.String())
}

// endPackage reports the tests that were cut off by the end of their process, and a failure that no
// test explains.
func (r *results) endPackage(pkg *test, e event) {
	m := pkg.module
	// Tests of this package that are still open will never end, because their process has ended.
	// They are failures only if the package has failed.
	var cut []*test
	for id, t := range r.open {
		if t.pkg == pkg.pkg && t.name != "" {
			delete(r.open, id)
			if !t.paused { // a paused test has no output yet
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
	// Without a failed test, a failed build or a test that was cut off, the package itself is the
	// failure, for example because of os.Exit in TestMain.
	explained := pkg.failed || e.FailedBuild != "" || len(cut) > 0
	if output := pkg.output.String(); !explained || len(cut) == 0 && strings.Contains(output, race) {
		r.fail(m, "FAIL "+pkg.String(), output)
	}
}

// fail counts a failure and prints its title.
func (r *results) fail(m *module, title, output string) {
	r.failed++
	m.failed++
	r.failures = append(r.failures, failure{title, progress.ReplaceAllString(output, "")})
	fmt.Fprintln(r.out, title)
}

// end records the end of a module's command. An error of the command is a failure if the module has
// no other.
func (r *results) end(m *module, took time.Duration, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m.took = took
	if err != nil && m.failed == 0 && r.kill.IsZero() {
		r.fail(m, fmt.Sprintf("FAIL %s: %s: %v", m.dir, strings.Join(m.command, " "), err), m.other.String())
	}
	fmt.Fprintf(r.out, "%s: passed %d, failed %d, skipped %d after %v\n", m.dir, r.passed, r.failed, r.skipped, round(time.Since(r.began)))
}

// interrupt stops the collection of results.
func (r *results) interrupt() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kill = time.Now().Add(grace)
	fmt.Fprintf(r.out, "interrupted: tests have %v to end\n", grace)
}

// killAt returns when the processes that tests leave behind are killed. It returns the zero time,
// which means at once, if there was no interrupt.
func (r *results) killAt() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.kill
}
