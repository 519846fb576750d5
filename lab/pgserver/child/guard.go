package child

import (
	"io"
	"os/exec"
	"syscall"
)

// Guard runs a cleanup script. The script runs when Run is called, or when this process ends
// without calling Run, even by SIGKILL.
type Guard struct {
	shell *exec.Cmd
	hold  io.Closer // the write end of the shell's stdin, open only in this process
}

// NewGuard starts a shell that runs the script as soon as this process closes the shell's stdin or
// ends. Signals of the terminal do not reach the shell. The script finds args at $0, $1 and so on.
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

// Run runs the script and returns its error.
func (g *Guard) Run() error {
	g.hold.Close()
	return g.shell.Wait()
}
