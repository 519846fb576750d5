package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

const (
	redrawInterval = 250 * time.Millisecond
	slowTest       = 10 * time.Second // a running test is in the status line if it runs longer
	namesShown     = 3                // of the tests that were skipped for one reason
	testsShown     = 10               // of the slowest tests
	modulesShown   = 5                // of the slowest modules
)

// showStatus updates the status line until ctx is canceled.
func (r *results) showStatus(ctx context.Context) {
	ticks := time.NewTicker(redrawInterval)
	defer ticks.Stop()
	for ctx.Err() == nil {
		r.updateStatus(ctx)
		select {
		case <-ctx.Done():
		case <-ticks.C:
		}
	}
}

func (r *results) updateStatus(ctx context.Context) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ctx.Err() != nil {
		return // the summary may already be on the screen
	}
	var dirs []string
	for _, m := range r.modules {
		if m.running {
			dirs = append(dirs, m.dir)
		}
	}
	r.screen.refresh(r.statusLine(strings.Join(dirs, " ")))
}

func (r *results) statusLine(dirs string) string {
	line := fmt.Sprintf("%s  passed %d  failed %d  skipped %d  %v",
		dirs, r.passed, r.failed, r.skipped, time.Since(r.began).Round(time.Second))
	if running := r.runningTests(); len(running) > 0 {
		if took := time.Since(running[0].since); took > slowTest {
			line += fmt.Sprintf("  %v %v", running[0], took.Round(time.Second))
		}
	}
	return line
}

// summarize prints the summary and returns the exit code.
func (r *results) summarize() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	// An interrupted run may have had no time for a test.
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
			took = append(took, timed{fmt.Sprintf("%s (building %v, processor %v)", m.dir, round(m.building), round(m.cpu)), m.took})
		}
	}
	writeSlowest(&text, "slowest modules", took, modulesShown)
	if !r.kill.IsZero() {
		writeSlowest(&text, "interrupted, while these tests ran", r.stopped, testsShown)
	}
	fmt.Fprintf(&text, "took %v, and %v of processor time\n", round(time.Since(r.began)), round(cpu))
	fmt.Fprintf(&text, "%d passed, %d failed, %d skipped\n", r.passed, r.failed, r.skipped)
	r.screen.print(text.String())
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

// list joins the first names, and says how many more there are.
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
