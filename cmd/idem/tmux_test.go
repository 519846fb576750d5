package main_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/idem-go/idem/lab/optional"
	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/pgtest"
)

// terminal is a tmux session of 80 columns and 24 lines that runs a command.
type terminal struct {
	t   *testing.T
	dir string
}

func newTerminal(t *testing.T, command string) *terminal {
	t.Helper()
	optional.Program(t, "tmux")
	dir, err := os.MkdirTemp("", "idem-tmux-") // paths of sockets have to be short
	if err != nil {
		t.Fatal(err)
	}
	term := &terminal{t, dir}
	t.Cleanup(func() {
		term.tmux("kill-server")
		os.RemoveAll(dir)
	})
	// Keep the screen after the program has ended.
	term.tmux("-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", "sh", "-c", `trap : INT; `+command+`; echo "exit code $?"; exec sleep 600`)
	return term
}

func (term *terminal) tmux(args ...string) string {
	term.t.Helper()
	cmd := exec.Command("tmux", append([]string{"-S", term.dir + "/socket"}, args...)...)
	cmd.Env = append(os.Environ(), "TERM=xterm-256color", "LC_ALL=C.UTF-8", "TMUX=")
	out, err := cmd.CombinedOutput()
	if err != nil {
		term.t.Fatalf("tmux %q: %v\n%s", args, err, out)
	}
	return string(out)
}

// shows waits until all parts are on the screen, and returns the screen.
func (term *terminal) shows(parts ...string) string {
	term.t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(30 * time.Millisecond) {
		screen := term.tmux("capture-pane", "-p")
		missing := ""
		for _, part := range parts {
			if !strings.Contains(screen, part) {
				missing = part
			}
		}
		if missing == "" {
			return screen
		}
		if time.Now().After(deadline) {
			term.t.Fatalf("%q is not on the screen:\n%s", missing, screen)
		}
	}
}

func (term *terminal) press(keys ...string) {
	term.t.Helper()
	term.tmux(append([]string{"send-keys"}, keys...)...)
}

func TestWatchIsALiveScreenInEightyColumns(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	pool := pgtest.Open(t, dsn)
	exec := func(sql string) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	proxy := pgtest.Proxy(t, dsn)
	term := newTerminal(t, fmt.Sprintf("DATABASE_URL='%s' %s watch --every 200ms", proxy.DSN(), program))
	term.shows("idem watch", "records", "keys in flight", "none has finished yet", "q quit")

	exec(`INSERT INTO idem.records (scope, key, hash, execution_id, created_at, expires_at, state)
		SELECT 's', n::text, '', gen_random_uuid(), now(), now() + '1 h', 'completed' FROM generate_series(1, 1234) n`)
	exec("ANALYZE idem.records")
	term.shows("1,234")

	proxy.Refuse(pgproxy.Reset) // the server is unavailable for a moment
	proxy.Cut(pgproxy.Reset)
	term.shows("cannot read", "1,234")
	proxy.Admit()
	for deadline := time.Now().Add(2 * time.Minute); strings.Contains(term.shows("1,234"), "cannot read"); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it does not recover")
		}
	}
	term.press("p")
	term.shows("paused")
	term.tmux("resize-window", "-x", "50", "-y", "12")
	term.shows("q quit", "…")
	term.press("q")
	if screen := term.shows("exit code 0"); strings.Contains(screen, "keys in flight") {
		t.Errorf("it leaves something on the screen:\n%s", screen)
	}
}

func TestCtrlCLeavesTheScreenWithItsExitCode(t *testing.T) {
	t.Parallel()
	term := newTerminal(t, fmt.Sprintf("DATABASE_URL='%s' %s watch", pgtest.DSN(t), program))
	term.shows("q quit")
	term.press("C-c")
	term.shows("exit code 130")
}

// Questions, progress and colors only appear on a terminal.
func TestTerminalIsAskedAndShownProgress(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	term := newTerminal(t, fmt.Sprintf("DATABASE_URL='%s' %s purge", dsn, program))
	term.shows("deletes what expired more than 1 h ago", "Go on? [y/N]")
	term.press("C-c")
	term.shows("exit code 130")

	again := newTerminal(t, fmt.Sprintf("DATABASE_URL='%s' %s purge", dsn, program))
	again.shows("Go on? [y/N]")
	again.press("y", "Enter")
	again.shows("finished", "exit code 0")
}
