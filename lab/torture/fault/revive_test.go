package fault

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// A server without space for its log still runs for a moment before it crashes.
func TestAServerThatGoesWhileItIsAskedIsStartedAgain(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("connections are found by /proc")
	}
	c := startCluster(t)
	mustExec(t, c, "insert into done values ('before')")
	primary := c.Primary()
	if err := syscall.Kill(primary.PID(), syscall.SIGSTOP); err != nil { // it listens, and answers nobody
		t.Fatal(err)
	}
	revived := make(chan error, 1)
	go func() { revived <- revive(within(t), c) }()
	eventually(t, "the server is asked", func() bool {
		connections, err := os.ReadFile("/proc/net/tcp")
		established := fmt.Sprintf(" 0100007F:%04X 01 ", primary.Port())
		return err == nil && strings.Contains(string(connections), established)
	})
	primary.Kill()
	if err := <-revived; err != nil {
		t.Fatal(err)
	}
	if n := count(t, c, "select count(*) from done"); n != 1 {
		t.Errorf("%d rows", n)
	}
}
