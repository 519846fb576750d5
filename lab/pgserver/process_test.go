package pgserver_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	osexec "os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/idem-go/idem/lab/pgserver"
)

// A stopped backend cannot notice that its postmaster has died. It would keep the data directory in
// use.
func TestKill_LeavesNoProcess(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("processes are found by /proc")
	}
	server := start(t, pgserver.Options{})
	connect(t, server)
	family := server.Processes()
	var backend *pgserver.Process
	for i, p := range family {
		if strings.Contains(p.Title, "127.0.0.1") {
			backend = &family[i]
		}
	}
	if backend == nil {
		t.Fatalf("no backend among %v", family)
	}
	if err := backend.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	server.Kill()
	for _, p := range family {
		if p.Alive() || p.Signal(syscall.Signal(0)) == nil {
			t.Errorf("%s is alive", p.Title)
		}
	}
	if err := server.Start(t.Context()); err != nil {
		t.Error(err)
	}
}

// A backend that has exited is a zombie until its postmaster reaps it, and accepts any signal until
// then.
func TestCrash_IgnoresAProcessThatEndedByItself(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("processes are found by /proc")
	}
	server := start(t, pgserver.Options{})
	ended, crashed := connect(t, server), connect(t, server)
	backend := func(pid uint32) pgserver.Process {
		for _, p := range server.Processes() {
			if p.PID == int(pid) {
				return p
			}
		}
		t.Fatalf("there is no process %d", pid)
		panic("unreachable")
	}
	first, second := backend(ended.PgConn().PID()), backend(crashed.PgConn().PID())
	if err := syscall.Kill(server.PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := ended.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the session has ended", func() bool { return !first.Alive() })
	if err := first.Crash(t.Context()); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("a process that had ended crashed: %v", err)
	}
	if err := syscall.Kill(server.PID(), syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := crashed.Ping(t.Context()); err != nil {
		t.Errorf("the server treated the end of the session as a crash: %v", err)
	}
	if err := second.Crash(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the log reports the crash", func() bool {
		return strings.Contains(server.LogTail(), fmt.Sprintf("(PID %d) was terminated by signal 9", second.PID))
	})
}

func TestServer_EndsWithTheProcessThatStartedIt(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux signals a child when its parent ends")
	}
	cmd := osexec.Command(os.Args[0], "start-and-wait", bin(t), passable(t))
	hold, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer hold.Close()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	var pid int
	if _, err := fmt.Fscan(out, &pid); err != nil {
		t.Fatal(err)
	}
	if !alive(pid) {
		t.Fatal("there is no server")
	}
	defer func() {
		if alive(pid) {
			syscall.Kill(pid, syscall.SIGQUIT)
		}
	}()
	cmd.Process.Kill()
	io.Copy(io.Discard, out)
	eventually(t, "the server is gone", func() bool { return !alive(pid) })
}

func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, state, _ := strings.Cut(string(stat), ") ")
	return err == nil && !strings.HasPrefix(state, "Z")
}
