package child_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/idem-go/idem/lab/pgserver/child"
)

// The test binary is also a process that has a guard and is killed.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "with-guard" {
		if _, err := child.NewGuard(`touch "$0"`, os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println("guarded")
		select {}
	}
	os.Exit(m.Run())
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func TestGuard_RunsAfterAKill(t *testing.T) {
	t.Parallel()
	mark := filepath.Join(t.TempDir(), "mark")
	cmd := exec.Command(os.Args[0], "with-guard", mark)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fscanln(out, new(string)); err != nil {
		t.Fatal(err)
	}
	cmd.Process.Kill()
	cmd.Wait()
	for deadline := time.Now().Add(time.Minute); !exists(mark); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the script has not run")
		}
	}
}
