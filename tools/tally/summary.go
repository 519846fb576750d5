package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

const (
	namesShown   = 3  // number of names shown for each reason to skip
	testsShown   = 10 // number of slowest tests shown
	modulesShown = 5  // number of slowest modules shown
)

// summarize prints the summary and returns the exit code.
func (r *results) summarize() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	// After an interrupt, it is no failure if no test has ended.
	if r.kill.IsZero() {
		r.checkForTests()
	}
	var text strings.Builder
	if len(r.failures) > 0 {
		fmt.Fprintf(&text, "\nfailures:\n")
	}
	for _, f := range r.failures {
		fmt.Fprintf(&text, "\n%s\n%s", f.title, f.output)
	}
	text.WriteString("\n")
	for _, why := range slices.SortedFunc(maps.Keys(r.skips), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(r.skips[b]), len(r.skips[a])), strings.Compare(a, b))
	}) {
		fmt.Fprintf(&text, "%d skipped: %s: %s\n", len(r.skips[why]), why, list(r.skips[why]))
	}
	writeSlowest(&text, "slowest tests", r.slow, testsShown)
	var took []timed
	var cpu time.Duration
	for _, m := range r.modules {
		if cpu += m.cpu; m.took > 0 {
			took = append(took, timed{fmt.Sprintf("%s (processor %v)", m.dir, round(m.cpu)), m.took})
		}
	}
	writeSlowest(&text, "slowest modules", took, modulesShown)
	fmt.Fprintf(&text, "took %v, and %v of processor time\n", round(time.Since(r.began)), round(cpu))
	fmt.Fprintf(&text, "%d passed, %d failed, %d skipped\n", r.passed, r.failed, r.skipped)
	io.WriteString(r.out, text.String())
	switch {
	case !r.kill.IsZero():
		return 130
	case r.failed > 0:
		return 1
	}
	return 0
}

// checkForTests records a failure if no test has run in any module.
func (r *results) checkForTests() {
	for _, m := range r.modules {
		if m.tests > 0 || m.failed > 0 {
			return
		}
	}
	for _, m := range r.modules {
		r.fail(m, "FAIL "+m.dir+": no test has run", m.other.String())
	}
}

// list joins the first names, and adds how many more names there are.
func list(names []string) string {
	if more := len(names) - namesShown; more > 1 {
		return fmt.Sprintf("%s, … and %d more", strings.Join(names[:namesShown], ", "), more)
	}
	return strings.Join(names, ", ")
}

func writeSlowest(text *strings.Builder, title string, all []timed, shown int) {
	if len(all) == 0 {
		return
	}
	slices.SortStableFunc(all, func(a, b timed) int { return cmp.Compare(b.took, a.took) })
	fmt.Fprintf(text, "%s:\n", title)
	for _, t := range all[:min(len(all), shown)] {
		fmt.Fprintf(text, "%9v  %s\n", round(t.took), t.name)
	}
}

func round(d time.Duration) time.Duration {
	if d < time.Minute {
		return d.Round(10 * time.Millisecond)
	}
	return d.Round(time.Second)
}
