package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// event is one line of "go test -json".
type event struct {
	Action     string
	Package    string
	ImportPath string // of a build
	Test       string
	Output     string
}

// test names a test or, without a name of its own, a whole package.
type test struct{ pkg, name string }

func (t test) String() string { return t.pkg + "." + t.name }

// count follows test runs.
type count struct {
	allowed map[string]string // why, by test; nil if any may be skipped
	verbose bool

	mu                      sync.Mutex // of what follows: several commands are read at a time
	out                     io.Writer
	shown                   time.Time          // when something was, last
	output                  map[test]string    // of tests that have not ended
	running                 map[test]time.Time // since when
	paused                  map[test]bool      // that wait for their turn
	passed, failed, skipped int
	wrong                   []string // why this run is not a success
}

func newCount(out io.Writer) *count {
	return &count{out: out, output: map[test]string{}, running: map[test]time.Time{}, paused: map[test]bool{}}
}

func (c *count) read(in io.Reader) error {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		c.take(line)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (c *count) take(line []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var e event
	switch {
	case len(line) == 0:
	case json.Unmarshal(line, &e) == nil && e.Action != "":
		c.add(e)
	default:
		c.out.Write(line) // not from go test
	}
}

// blame notes why this run is not a success.
func (c *count) blame(why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wrong = append(c.wrong, why)
}

func (c *count) add(e event) {
	t := test{e.Package, e.Test}
	switch e.Action {
	case "output":
		if e.Test == "" || c.verbose {
			c.show(e.Output)
		}
		if e.Test != "" {
			c.output[t] += e.Output
		}
	case "build-output":
		c.show(e.Output)
	case "build-fail":
		c.wrong = append(c.wrong, e.ImportPath+" does not build")
	case "run", "cont":
		c.running[t] = time.Now()
		delete(c.paused, t)
	case "pause":
		delete(c.running, t)
		c.paused[t] = true
	case "pass", "fail", "skip":
		c.end(t, e.Action)
		delete(c.output, t)
		delete(c.running, t)
		delete(c.paused, t)
	}
}

func (c *count) show(text string) {
	c.shown = time.Now()
	io.WriteString(c.out, text)
}

// mostShown is how many of the running tests are shown, the longest first.
const mostShown = 8

// showRunning shows what is running if nothing has been shown for so long. A test that waits for its subtests is not told of.
func (c *count) showRunning(silent time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.shown) < silent {
		return
	}
	var tests []test
	for t := range c.running {
		if t.name != "" && !c.waitsForParts(t) {
			tests = append(tests, t)
		}
	}
	slices.SortFunc(tests, func(a, b test) int {
		return cmp.Or(c.running[a].Compare(c.running[b]), cmp.Compare(a.String(), b.String()))
	})
	var list strings.Builder
	for _, t := range tests[:min(len(tests), mostShown)] {
		fmt.Fprintf(&list, "    %v for %.0f s\n", t, time.Since(c.running[t]).Seconds())
	}
	switch more := len(tests) - mostShown; {
	case len(tests) == 0:
		list.WriteString("    none: something is being built\n")
	case more > 0:
		fmt.Fprintf(&list, "    and %d more\n", more)
	}
	c.show(fmt.Sprintf("%d passed; running:\n%s", c.passed, list.String()))
}

// waitsForParts reports whether subtests of the test have not ended.
func (c *count) waitsForParts(t test) bool {
	isPart := func(other test) bool { return other.pkg == t.pkg && strings.HasPrefix(other.name, t.name+"/") }
	return slices.ContainsFunc(slices.Collect(maps.Keys(c.running)), isPart) || slices.ContainsFunc(slices.Collect(maps.Keys(c.paused)), isPart)
}

// race begins what the race detector says.
const race = "WARNING: DATA RACE"

func (c *count) end(t test, action string) {
	if t.name == "" {
		maps.DeleteFunc(c.running, func(r test, _ time.Time) bool { return r.pkg == t.pkg }) // that a panic has ended
		maps.DeleteFunc(c.paused, func(p test, _ bool) bool { return p.pkg == t.pkg })
		if action == "fail" {
			c.wrong = append(c.wrong, t.pkg+" failed")
			c.showUnfinished(t.pkg)
		}
		return
	}
	switch action {
	case "pass":
		c.passed++
		if strings.Contains(c.output[t], race) { // which fails the package, and none of its tests if it was found between two of them
			fmt.Fprintf(c.out, "RACE %v\n%s", t, c.output[t])
		}
	case "fail":
		c.failed++
		fmt.Fprintf(c.out, "FAIL %v\n%s", t, c.output[t])
		c.wrong = append(c.wrong, t.String()+" failed")
	case "skip":
		c.skipped++
		why, ok := c.allowed[t.String()]
		switch {
		case c.allowed == nil:
			why = reason(c.output[t])
		case !ok:
			c.wrong = append(c.wrong, t.String()+" was skipped")
			why = "not allowed: " + reason(c.output[t])
		}
		fmt.Fprintf(c.out, "SKIP %v: %s\n", t, why)
	}
}

// showUnfinished shows what the tests said that a panic or a timeout has cut off.
func (c *count) showUnfinished(pkg string) {
	for t, output := range c.output {
		if t.pkg == pkg {
			fmt.Fprintf(c.out, "UNFINISHED %v\n%s", t, output)
			delete(c.output, t)
		}
	}
}

// reason is what a skipped test said, without the lines that every test prints.
func reason(output string) string {
	var said []string
	for line := range strings.Lines(output) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "=== ") && !strings.HasPrefix(line, "--- SKIP") {
			said = append(said, line)
		}
	}
	return strings.Join(said, " ")
}

// sum says what the run comes to, and whether it is a success.
func (c *count) sum() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.passed+c.failed+c.skipped == 0 {
		c.wrong = append(c.wrong, "no test has run")
	}
	for _, what := range c.wrong {
		fmt.Fprintln(c.out, "not a success:", what)
	}
	fmt.Fprintf(c.out, "%d passed, %d failed, %d skipped\n", c.passed, c.failed, c.skipped)
	return len(c.wrong) == 0
}
