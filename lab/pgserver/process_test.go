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

func TestCommittedRowsSurviveEveryEndOfTheServer(t *testing.T) {
	t.Parallel()
	server := start(t, pgserver.Options{})
	exec(t, server, "create table ends (name text)")
	dsn := server.DSN()
	for i, end := range []struct {
		name string
		do   func()
	}{
		{"immediate", func() { stop(t, server, pgserver.Immediate) }},
		{"killed", server.Kill},
	} {
		exec(t, server, "insert into ends values ('"+end.name+"')")
		end.do()
		if server.Running() || server.PID() != 0 {
			t.Fatalf("%s: the server runs", end.name)
		}
		if err := server.Start(t.Context()); err != nil {
			t.Fatalf("after %s: %v", end.name, err)
		}
		if got, want := text(t, server, "select count(*)::text from ends"), fmt.Sprint(i+1); got != want || server.DSN() != dsn {
			t.Errorf("after %s: %s rows, want %s; at the same address: %v", end.name, got, want, server.DSN() == dsn)
		}
	}
}

func stop(t *testing.T, server *pgserver.Server, mode pgserver.Mode) {
	t.Helper()
	if err := server.Stop(mode); err != nil {
		t.Error(err)
	}
}

// A stopped backend cannot notice that its postmaster has died. It would keep the data directory in
// use.
func TestKillLeavesNoProcess(t *testing.T) {
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
func TestCrashTellsAProcessThatEndedByItselfFromOneThatCrashed(t *testing.T) {
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
		t.Errorf("the server took it for a crash: %v", err)
	}
	if err := second.Crash(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the log says so", func() bool {
		return strings.Contains(server.LogTail(), fmt.Sprintf("(PID %d) was terminated by signal 9", second.PID))
	})
}

func TestServerEndsWithTheProcessThatStartedIt(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux can be asked for this")
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
