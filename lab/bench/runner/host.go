package runner

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

	"github.com/idem-go/idem/lab/bench/result"
)

// NewRun returns the description of a run of a suite that begins now on this machine. The
// description includes the versions of the given modules.
func NewRun(suite string, modules ...string) result.Run {
	return result.Run{
		Suite: suite, Taken: time.Now().UTC().Truncate(time.Second), Versions: versions(modules), Load: find("/proc/loadavg", `^(\S+)`),
		Commit: output("git", "describe", "--always", "--dirty", "--exclude=*"),
		Machine: fmt.Sprintf("%d cores of %s, %s, %s", runtime.NumCPU(), find("/proc/cpuinfo", `model name\s*:\s*(.*)`),
			find("/etc/os-release", `PRETTY_NAME="(.*)"`), output("uname", "-sr")),
	}
}

// versions returns the versions of Go and of the given modules.
func versions(modules []string) string {
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

// output runs a command and returns what it prints, without white space around it. It ignores a
// failure of the command.
func output(name string, args ...string) string {
	out, _ := exec.Command(name, args...).Output()
	return strings.TrimSpace(string(out))
}

// find returns the text that the group in pattern matches in a file. It returns "" if pattern
// matches nowhere.
func find(path, pattern string) string {
	text, _ := os.ReadFile(path)
	if match := regexp.MustCompile(`(?m)` + pattern).FindSubmatch(text); match != nil {
		return string(match[1])
	}
	return ""
}
