package arena

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

//go:embed preload/slowdisk.c
var slowDiskSource string

// slowDisk compiles what makes the disk of a server slow, and returns the environment that the server has to run in.
func slowDisk(dir string, delay time.Duration) ([]string, error) {
	if delay == 0 {
		return nil, nil
	}
	compiler, err := exec.LookPath("gcc")
	if err != nil {
		return nil, errors.New("there is no gcc")
	}
	library := filepath.Join(dir, "slowdisk.so")
	cmd := exec.Command(compiler, "-O2", "-Wall", "-shared", "-fPIC", "-o", library, "-x", "c", "-", "-ldl")
	cmd.Stdin = strings.NewReader(slowDiskSource)
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("gcc: %w\n%s", err, bytes.TrimSpace(out))
	}
	return []string{"LD_PRELOAD=" + library, "IDEM_BENCH_FLUSH_US=" + strconv.FormatInt(delay.Microseconds(), 10)}, nil
}
