package ledger

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"syscall"

	"github.com/idem-go/idem/lab/pgserver/child"
)

// role is the environment variable with the role of a child.
const role = "IDEM_TEST_ROLE"

// Ready reports to the test process that this process has started its work.
func Ready() { fmt.Println("ready") }

// Process is a child process that runs the test binary in a role. It is killed at the end of the
// test process.
type Process = child.Process

// Start starts a process with additional environment variables, and returns when the process has
// called Ready. The process writes its standard error to log.
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
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		c.Kill()
		return nil, errors.Join(fmt.Errorf("the process printed %q, want ready", line), err)
	}
	return c, nil
}

// group is a number of processes with one role.
type group struct {
	role      string
	log       io.Writer
	env       []string
	mu        sync.Mutex
	processes []*Process
	closed    bool
}

func newGroup(n int, role string, log io.Writer, env ...string) (*group, error) {
	g := &group{role: role, log: log, env: env, processes: make([]*Process, n)}
	for i := range g.processes {
		if err := g.start(i); err != nil {
			g.close()
			return nil, err
		}
	}
	return g, nil
}

// killOne kills a random process and starts another one.
func (g *group) killOne() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil
	}
	i := rand.N(len(g.processes))
	g.processes[i].Kill()
	return g.start(i)
}

func (g *group) start(i int) (err error) {
	g.processes[i], err = Start(g.role, g.log, g.env...)
	return err
}

func (g *group) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	for _, p := range g.processes {
		if p != nil {
			p.Kill()
		}
	}
}
