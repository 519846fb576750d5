package result

import (
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
)

// Describe notes the machine, its load, and the versions of what is compared.
func (r *Results) Describe() {
	memory, _ := strconv.Atoi(find("/proc/meminfo", `MemTotal:\s+(\d+) kB`))
	r.Machine = Machine{
		OS: find("/etc/os-release", `PRETTY_NAME="(.*)"`), Kernel: output("uname", "-sr"),
		CPU: find("/proc/cpuinfo", `model name\s*:\s*(.*)`), Cores: runtime.NumCPU(), MemoryGB: memory >> 20,
	}
	r.Load, _ = strconv.ParseFloat(find("/proc/loadavg", `^(\S+)`), 64)
	r.Versions = map[string]string{"go": strings.TrimPrefix(runtime.Version(), "go")}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, module := range info.Deps {
			if slices.Contains(compared, module.Path) {
				r.Versions[module.Path] = strings.TrimPrefix(module.Version, "v")
			}
		}
	}
	if version := regexp.MustCompile(`v=(\S+)`).FindStringSubmatch(output("redis-server", "--version")); version != nil {
		r.Versions["redis-server"] = version[1]
	}
}

// compared are the modules whose versions matter to a reader.
var compared = []string{
	"github.com/jackc/pgx/v5", "github.com/dbos-inc/dbos-transact-golang", "github.com/riverqueue/river",
	"github.com/gofiber/fiber/v3", "github.com/gofiber/storage/postgres/v3", "github.com/redis/go-redis/v9",
}

// find returns what the pattern's group matches first in a file, or nothing.
func find(path, pattern string) string {
	text, _ := os.ReadFile(path)
	if match := regexp.MustCompile(`(?m)` + pattern).FindSubmatch(text); match != nil {
		return string(match[1])
	}
	return ""
}

func output(program string, args ...string) string {
	out, _ := exec.Command(program, args...).Output()
	return strings.TrimSpace(string(out))
}
