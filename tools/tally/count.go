package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"
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

// count follows a test run.
type count struct {
	out     io.Writer
	allowed map[string]string // why, by test

	output                  map[test]string // of tests that still run
	passed, failed, skipped int
	wrong                   []string // why this run is not a success
}

func (c *count) read(in io.Reader) error {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		var e event
		switch {
		case len(line) == 0:
		case json.Unmarshal(line, &e) == nil && e.Action != "":
			c.add(e)
		default:
			c.out.Write(line) // not from go test
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (c *count) add(e event) {
	t := test{e.Package, e.Test}
	switch e.Action {
	case "output":
		if e.Test == "" {
			fmt.Fprint(c.out, e.Output)
		} else {
			c.output[t] += e.Output
		}
	case "build-output":
		fmt.Fprint(c.out, e.Output)
	case "build-fail":
		c.wrong = append(c.wrong, e.ImportPath+" does not build")
	case "pass", "fail", "skip":
		c.end(t, e.Action)
		delete(c.output, t)
	}
}

func (c *count) end(t test, action string) {
	if t.name == "" {
		if action == "fail" {
			c.wrong = append(c.wrong, t.pkg+" failed")
			c.showUnfinished(t.pkg)
		}
		return
	}
	switch action {
	case "pass":
		c.passed++
	case "fail":
		c.failed++
		fmt.Fprintf(c.out, "FAIL %v\n%s", t, c.output[t])
		c.wrong = append(c.wrong, t.String()+" failed")
	case "skip":
		c.skipped++
		why, ok := c.allowed[t.String()]
		if !ok {
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
	if c.passed+c.failed+c.skipped == 0 {
		c.wrong = append(c.wrong, "no test has run")
	}
	for _, what := range c.wrong {
		fmt.Fprintln(c.out, "not a success:", what)
	}
	fmt.Fprintf(c.out, "%d passed, %d failed, %d skipped\n", c.passed, c.failed, c.skipped)
	return len(c.wrong) == 0
}
