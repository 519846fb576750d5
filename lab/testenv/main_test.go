package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
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

func TestExitCodeIsTheCommands(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		command string
		want    int
	}{
		{"exit 0", 0},
		{"exit 7", 7},
		{"kill -KILL $$", 128 + 9},
	} {
		cmd := testenv(t, nil, "sh", "-c", test.command)
		cmd.Run()
		if got := cmd.ProcessState.ExitCode(); got != test.want {
			t.Errorf("%q: exit code %d, want %d", test.command, got, test.want)
		}
	}
}

func TestExitCodeWithoutACommand(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		env  []string
		args []string
		want int
	}{
		{"nothing to run", nil, nil, exitUnable},
		{"a command that does not exist", nil, []string{"no-such-command"}, 127},
		{"a command that is no program", nil, []string{"/"}, 126},
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

func TestCommandFindsItsDatabases(t *testing.T) {
	t.Parallel()
	proc := startTestenv(t, nil, "-c", "max_connections=57", "-database", `a "strange" name`)
	if got := proc.report.Own; got != `a "strange" name` {
		t.Errorf("DATABASE_URL leads to %q", got)
	}
	if !proc.report.Migrated {
		t.Error("the database at DATABASE_URL has no records table")
	}
	if !strings.HasPrefix(proc.report.Template, namePrefix) {
		t.Errorf("the template is %q", proc.report.Template)
	}
	if got := proc.report.MaxConnections; got != "57" {
		t.Errorf("max_connections is %s, want what -c said", got)
	}
	proc.signal(t, syscall.SIGTERM)
	proc.wait(t)
}

func TestSignalsReachTheCommandAndEverythingIsCleanedUp(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
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

func TestInterruptWhileStarting(t *testing.T) {
	t.Parallel()
	cmd := testenv(t, nil, "sh", "-c", "echo started")
	var out, said strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	dir := waitRunDir(t, cmd.Process.Pid)
	cmd.Process.Signal(syscall.SIGINT)
	cmd.Wait()
	if got := cmd.ProcessState.ExitCode(); got != 128+int(syscall.SIGINT) || out.Len() > 0 {
		t.Errorf("exit code %d, output %q, want 130 and none", got, out.String())
	}
	if _, err := os.Stat(dir); err == nil {
		left, _ := exec.Command("find", dir, "-ls").CombinedOutput()
		t.Errorf("%s is still there, with:\n%s\ntestenv said: %s", dir, left, said.String())
	}
}

func TestKilledTestenvLeavesNothingForLong(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("elsewhere the server only ends a minute after the next start of testenv")
	}
	proc := startTestenv(t, nil)
	proc.signal(t, syscall.SIGKILL)
	proc.wait(t)
	proc.checkGone(t)

	if err := testenv(t, nil, "true").Run(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(proc.report.runDir()); err == nil {
		t.Errorf("%s is still there after the next start", proc.report.runDir())
	}
}

func TestWhatTheCommandLeavesRunningIsEnded(t *testing.T) {
	t.Parallel()
	out, err := testenv(t, nil, "sh", "-c", "sleep 1000 >/dev/null 2>&1 & echo $!").Output()
	if err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Sscan(string(out), &pid); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the background process is gone", func() bool { return !alive(pid) })
}

func TestKeepHoldsAFailedRunUntilInterrupted(t *testing.T) {
	t.Parallel()
	cmd := testenv(t, []string{"IDEM_TEST_KEEP=1"}, "sh", "-c", "exit 3")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var address string
	for lines := bufio.NewScanner(stderr); address == "" && lines.Scan(); {
		if _, rest, ok := strings.Cut(lines.Text(), "psql '"); ok {
			address = strings.TrimSuffix(rest, "'")
		}
	}
	if err := ping(t.Context(), address); err != nil {
		t.Errorf("the server at %q was not kept: %v", address, err)
	}
	cmd.Process.Signal(syscall.SIGINT)
	io.Copy(io.Discard, stderr)
	cmd.Wait()
	if got := cmd.ProcessState.ExitCode(); got != 3 {
		t.Errorf("exit code %d, want the command's own 3", got)
	}
	if ping(t.Context(), address) == nil {
		t.Error("the server is still there")
	}
}
