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
	program, err := buildOrders()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "serve", "-listen", "127.0.0.1:0", "-slow", "1h")
	cmd.Env = append(os.Environ(), "DATABASE_URL="+databaseURL, "FULFILMENT_DATABASE_URL="+pgtest.EmptyDSN(t))
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close() // the process has its own descriptor
	cmd.Stderr = log
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		io.Copy(io.Discard, stdout)
		if err := cmd.Wait(); err != nil || t.Failed() {
			text, _ := os.ReadFile(log.Name())
			t.Logf("the service ended with %v, log: %s", err, text)
		}
	})
	first, err := bufio.NewReader(stdout).ReadString('\n')
	url, ok := strings.CutPrefix(strings.TrimSpace(first), "listening on ")
	if !ok {
		t.Fatalf("the service began with %q, %v", first, err)
	}
	return url
}

// buildOrders builds the service once. TestMain removes it.
var buildOrders = sync.OnceValues(func() (string, error) {
	program := filepath.Join(buildDir, "orders")
	build := exec.Command("go", "build", "-C", "../../example/orders", "-o", program, ".")
	build.Stderr = os.Stderr
	return program, build.Run()
})

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
