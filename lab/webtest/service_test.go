package webtest

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/idem-go/idem/lab/pgtest"
)

// startOrders starts the shop of example/orders on a database and returns its URL. It stops at the
// end of the test.
func startOrders(t *testing.T, databaseURL string) string {
	t.Helper()
	env := []string{"DATABASE_URL=" + databaseURL, "FULFILMENT_DATABASE_URL=" + pgtest.EmptyDSN(t)}
	stdout := serve(t, buildOrders, env, "serve", "-listen", "127.0.0.1:0", "-slow", "1h")
	first, err := bufio.NewReader(stdout).ReadString('\n')
	url, ok := strings.CutPrefix(strings.TrimSpace(first), "listening on ")
	if !ok {
		t.Fatalf("the service began with %q, %v", first, err)
	}
	return url
}

// serve starts a program with additional environment variables and returns its standard output. The
// program stops at the end of the test.
func serve(t *testing.T, build func() (string, error), env []string, args ...string) io.Reader {
	t.Helper()
	program, err := build()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, args...)
	var log strings.Builder
	cmd.Env, cmd.Stderr = append(os.Environ(), env...), &log
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		io.Copy(io.Discard, stdout)
		if err := cmd.Wait(); err != nil || t.Failed() {
			t.Logf("%s ended with %v, log: %s", filepath.Base(program), err, log.String())
		}
	})
	return stdout
}

// buildOrders and buildIdem build their programs once. TestMain removes them.
var buildOrders, buildIdem = builder("example/orders"), builder("cmd/idem")

func builder(module string) func() (string, error) {
	return sync.OnceValues(func() (string, error) {
		program := filepath.Join(buildDir, filepath.Base(module))
		build := exec.Command("go", "build", "-C", "../../"+module, "-o", program, ".")
		build.Stderr = os.Stderr
		return program, build.Run()
	})
}

var buildDir string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "webtest")
	if err != nil {
		panic(err)
	}
	buildDir = dir
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}
