package ledger

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"

	"github.com/idem-go/idem/lab/pgserver/child"
)

// role is the variable that makes a process of the test's own program.
const role = "IDEM_TEST_ROLE"

// Role returns what this process is for, or nothing if it is the test itself. TestMain asks.
func Role() string { return os.Getenv(role) }

// Ready tells the test that this process is at work.
func Ready() { fmt.Println("at work") }

// Process is a process of the test's own program, to be killed. It ends with the test at the latest.
type Process struct{ child *child.Process }

// Start starts one with further variables, and returns when it is at work. Its errors go to log.
func Start(name string, log io.Writer, env ...string) (*Process, error) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), append(env, role+"="+name)...)
	cmd.Stderr = log
	out, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd.Stdout = in
	c, err := child.Start(cmd, syscall.SIGKILL)
	in.Close()
	if err != nil {
		return nil, err
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "at work\n" {
		c.Kill()
		return nil, errors.Join(fmt.Errorf("the process says %q", line), err)
	}
	return &Process{c}, nil
}

// Done is closed when it has ended.
func (p *Process) Done() <-chan struct{} { return p.child.Done() }

// Kill ends it at once.
func (p *Process) Kill() { p.child.Kill() }
