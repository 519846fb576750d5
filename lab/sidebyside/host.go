package sidebyside

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
)

// Host is where and when something was measured, and of which source.
type Host struct {
	Taken   time.Time
	Machine string
	Load    string // average, before anything was measured
	Commit  string // of this repository, empty if that is not known
}

// Here is this machine, at this time.
func Here() Host {
	return Host{
		Taken: time.Now().UTC(), Load: find("/proc/loadavg", `^(\S+)`), Commit: said("git", "describe", "--always", "--dirty", "--exclude=*"),
		Machine: fmt.Sprintf("%d cores of %s, %s, %s", runtime.NumCPU(), find("/proc/cpuinfo", `model name\s*:\s*(.*)`),
			find("/etc/os-release", `PRETTY_NAME="(.*)"`), said("uname", "-sr")),
	}
}

// Preamble says where, when and how a benchmark in that folder was run.
func (h Host) Preamble(folder, command string, took time.Duration) string {
	return fmt.Sprintf("Taken on %s, in %v, of commit %s, by `%s` in `%s`, on %s. The load average just before was %s.",
		h.Taken.Format("2 January 2006, 15:04 UTC"), took, h.Commit, command, folder, h.Machine, h.Load)
}

// said is what a command has written, or nothing.
func said(name string, args ...string) string {
	out, _ := exec.Command(name, args...).Output()
	return strings.TrimSpace(string(out))
}

// find returns what the pattern's group matches first in a file, or nothing.
func find(path, pattern string) string {
	text, _ := os.ReadFile(path)
	if match := regexp.MustCompile(`(?m)` + pattern).FindSubmatch(text); match != nil {
		return string(match[1])
	}
	return ""
}

// Versions names those of Go and of the given modules in this program.
func Versions(modules ...string) string {
	all := []string{"go " + strings.TrimPrefix(runtime.Version(), "go")}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, module := range info.Deps {
			if slices.Contains(modules, module.Path) {
				all = append(all, module.Path+" "+strings.TrimPrefix(module.Version, "v"))
			}
		}
	}
	return strings.Join(all, ", ")
}

// Command is how this run can be repeated.
func Command() string {
	return strings.Join(append([]string{"go run ."}, os.Args[1:]...), " ")
}
