package main

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/idem-go/idem/bench/operations/contestant"
)

// results are what a run has measured.
type results struct {
	options     options
	contestants []contestant.Contestant

	Taken   time.Time
	Took    time.Duration
	Machine string
	Load    string
	Server  string
	Flush   time.Duration
	Costs   []cost
	Cells   []*cell
	Crowd   time.Duration
	Kills   []*resumption
}

// newResults notes when this was, and where.
func newResults(o options, contestants []contestant.Contestant) *results {
	out, _ := exec.Command("uname", "-sr").Output()
	return &results{
		options: o, contestants: contestants, Taken: time.Now().UTC(), Load: find("/proc/loadavg", `^(\S+)`),
		Machine: fmt.Sprintf("%d cores of %s, %s, %s", runtime.NumCPU(), find("/proc/cpuinfo", `model name\s*:\s*(.*)`),
			find("/etc/os-release", `PRETTY_NAME="(.*)"`), strings.TrimSpace(string(out))),
	}
}

// find returns what the pattern's group matches first in a file, or nothing.
func find(path, pattern string) string {
	text, _ := os.ReadFile(path)
	if match := regexp.MustCompile(`(?m)` + pattern).FindSubmatch(text); match != nil {
		return string(match[1])
	}
	return ""
}

// compared are the modules whose versions matter to a reader.
var compared = []string{
	"github.com/jackc/pgx/v5", "github.com/dbos-inc/dbos-transact-golang", "github.com/riverqueue/river", "github.com/cschleiden/go-workflows",
}

func versions() string {
	all := []string{"go " + strings.TrimPrefix(runtime.Version(), "go")}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, module := range info.Deps {
			if slices.Contains(compared, module.Path) {
				all = append(all, module.Path+" "+strings.TrimPrefix(module.Version, "v"))
			}
		}
	}
	return strings.Join(all, ", ")
}

// command is how this run can be repeated.
func command() string {
	return strings.Join(append([]string{"go run ."}, os.Args[1:]...), " ")
}
