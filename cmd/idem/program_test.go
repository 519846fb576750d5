package main_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	main "github.com/idem-go/idem/cmd/idem"
)

// program is a link to the binary of these tests. Under this name the binary runs the command.
var program string

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "idem" {
		os.Exit(main.Run())
	}
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "idem-program-")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		program = filepath.Join(dir, "idem")
		self, err := os.Executable()
		if err == nil {
			err = os.Symlink(self, program)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}())
}

// ran is the output and exit code of a command.
type ran struct {
	code           int
	stdout, stderr string
}

// run executes the program with these environment variables and those that it needs to run at all.
func run(t *testing.T, env []string, args ...string) ran {
	t.Helper()
	cmd := exec.CommandContext(context.Background(), program, args...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}, env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return ran{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}
