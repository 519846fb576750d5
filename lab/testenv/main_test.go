package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// The test binary is also testenv itself, and the command that testenv runs.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "as-testenv":
			os.Exit(run(os.Args[2:]))
		case "as-command":
			os.Exit(reportAndWait())
		}
	}
	os.Exit(m.Run())
}

func TestRun_ExitCode(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		env  []string
		args []string
		want int
	}{
		{"a command that fails", nil, []string{"sh", "-c", "exit 7"}, 7},
		{"a command that is killed", nil, []string{"sh", "-c", "kill -KILL $$"}, 128 + 9},
		{"a command that does not exist", nil, []string{"no-such-command"}, 127},
		{"no server", []string{"IDEM_TEST_POSTGRES_BIN=/nowhere"}, []string{"true"}, exitUnable},
		{"a setting that the server refuses", nil, []string{"-c", "no_such_setting=1", "true"}, exitUnable},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			cmd := testenv(t, test.env, test.args...)
			cmd.Run()
			if got := cmd.ProcessState.ExitCode(); got != test.want {
				t.Errorf("exit code %d, want %d", got, test.want)
			}
		})
	}
}

func TestCommand_FindsItsDatabases(t *testing.T) {
	t.Parallel()
	proc := startTestenv(t, nil, "-c", "max_connections=57")
	if !proc.report.Migrated {
		t.Error("the database at DATABASE_URL has no records table")
	}
	if !strings.HasPrefix(proc.report.Template, namePrefix) {
		t.Errorf("the template is %q", proc.report.Template)
	}
	if got := proc.report.MaxConnections; got != "57" {
		t.Errorf("max_connections is %s, want 57, the value of -c", got)
	}
	proc.signal(t, syscall.SIGTERM)
	proc.wait(t)
}

func TestSignal_ReachesTheCommandAndEverythingIsRemoved(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGHUP} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			// Like "go run", the shell does not forward signals. The command still gets the signal.
			proc := startTestenv(t, []string{"THROUGH=shell"})
			proc.signal(t, sig)
			if got := proc.wait(t); got != exitSignalled {
				t.Errorf("exit code %d, want the command's own %d", got, exitSignalled)
			}
			proc.checkGone(t)
			if _, err := os.Stat(proc.report.runDir()); err == nil {
				t.Errorf("%s is still there", proc.report.runDir())
			}
		})
	}
}

func TestInterrupt_WhileTheServerStarts(t *testing.T) {
	t.Parallel()
	parent, err := os.MkdirTemp("", "idem-testrun-test-") // not t.TempDir, which another user cannot enter
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(parent)
	os.Chmod(parent, 0o711)
	cmd := testenv(t, []string{"TMPDIR=" + parent}, "-c", "fsync=on", "sh", "-c", "echo started")
	var out, log strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	dir := runDirIn(t, parent)
	eventually(t, "it starts a server", func() bool {
		_, err := os.Stat(filepath.Join(dir, "server"))
		return err == nil
	})
	cmd.Process.Signal(syscall.SIGINT)
	cmd.Wait()
	if got := cmd.ProcessState.ExitCode(); got != 128+int(syscall.SIGINT) || out.Len() > 0 {
		t.Errorf("exit code %d, output %q, want 130 and none", got, out.String())
	}
	if _, err := os.Stat(dir); err == nil {
		left, _ := exec.Command("find", dir, "-ls").CombinedOutput()
		t.Errorf("%s is still there, with:\n%s\nlog: %s", dir, left, log.String())
	}
}

func TestKill_LeavesNothing(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("elsewhere the server ends up to a minute later")
	}
	proc := startTestenv(t, nil)
	proc.signal(t, syscall.SIGKILL)
	proc.wait(t)
	proc.checkGone(t)
	eventually(t, "its directory is gone", func() bool {
		_, err := os.Stat(proc.report.runDir())
		return err != nil
	})
}
