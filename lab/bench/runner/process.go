package runner

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"github.com/idem-go/idem/lab/pgserver/child"
)

// workerRole is the environment variable that makes this program run as a worker process.
const workerRole = "IDEM_BENCH_WORKER"

// Again starts this program again as a worker process that may be killed. In the worker process,
// the call of Work with the same kind runs its function with role. The worker process ends when
// this process ends.
func Again(kind string, role any) (*child.Process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(role)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), workerRole+"="+kind+" "+string(text))
	cmd.Stderr = os.Stderr
	return child.Start(cmd, syscall.SIGKILL)
}

// Work runs the function work and exits the process, if Again has started this process for kind. In
// any other process, Work returns at once. main and TestMain must call Work before anything else.
func Work[R any](kind string, work func(role R) error) {
	var role R
	value, text := os.Getenv(workerRole), ""
	if n := len(kind) + 1; len(value) > n && value[:n] == kind+" " {
		text = value[n:]
	} else {
		return
	}
	err := json.Unmarshal([]byte(text), &role)
	if err == nil {
		err = work(role)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "bench worker: %v\n", err)
		os.Exit(1)
	}
	os.Exit(0)
}
