package runner

import (
	"bytes"
	_ "embed"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/idem-go/idem/lab/optional"
)

//go:embed preload/slowdisk.c
var slowDiskSource string

// slowDisk compiles a library that delays each flush to disk, and returns the environment that
// preloads it into the server. A zero delay needs no library.
func slowDisk(dir string, delay time.Duration) ([]string, error) {
	if delay == 0 {
		return nil, nil
	}
	compiler, err := optional.Find("gcc")
	if err != nil {
		return nil, err
	}
	library := filepath.Join(dir, "slowdisk.so")
	cmd := exec.Command(compiler, "-O2", "-Wall", "-shared", "-fPIC", "-o", library, "-x", "c", "-", "-ldl")
	cmd.Stdin = strings.NewReader(slowDiskSource)
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %w\n%s", optional.Needs("gcc"), err, bytes.TrimSpace(out))
	}
	return []string{"LD_PRELOAD=" + library, "IDEM_BENCH_FLUSH_US=" + strconv.FormatInt(delay.Microseconds(), 10)}, nil
}
