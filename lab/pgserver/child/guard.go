package child

import (
	"io"
	"os/exec"
	"syscall"
)

// Guard cleans up: it runs a shell script when it is told to, and when this process ends without having done so, by
// SIGKILL even.
type Guard struct {
	shell *exec.Cmd
	hold  io.Closer // the guard waits for as long as anybody has it open, which is this process alone
}

// NewGuard starts a guard, out of reach of the terminal's signals. The script finds the arguments at $0, $1 and so on.
func NewGuard(script string, args ...string) (*Guard, error) {
	shell := exec.Command("sh", append([]string{"-c", "read _; " + script}, args...)...)
	shell.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	hold, err := shell.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := shell.Start(); err != nil {
		return nil, err
	}
	return &Guard{shell, hold}, nil
}

// Run runs the script, and returns how it ended.
func (g *Guard) Run() error {
	g.hold.Close()
	return g.shell.Wait()
}
