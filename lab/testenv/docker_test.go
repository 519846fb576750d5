package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/idem-go/idem/lab/optional"
)

func TestContainer_IsRemovedHoweverTestenvEnds(t *testing.T) {
	t.Parallel()
	if err := pingEngine(t.Context()); err != nil {
		optional.Require(t, fmt.Errorf("%w: %w", optional.Needs("docker"), err))
	}
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGKILL} {
		parent := t.TempDir()
		proc := startTestenv(t, []string{"TMPDIR=" + parent, "IDEM_TEST_POSTGRES=docker", "IDEM_TEST_POSTGRES_IMAGE=" + os.Getenv("IDEM_TEST_POSTGRES_IMAGE")},
			"-c", "max_connections=57", "-c", "fsync=on")
		if got := proc.report.MaxConnections; got != "57" || !proc.report.Migrated {
			t.Errorf("max_connections is %s, migrated: %v; want 57 and true", got, proc.report.Migrated)
		}
		name := filepath.Base(runDirIn(t, parent))
		if _, err := docker(t.Context(), "inspect", name); err != nil {
			t.Fatal(err)
		}
		proc.signal(t, sig)
		proc.wait(t)
		eventually(t, "the container is gone", func() bool {
			_, err := docker(t.Context(), "inspect", name)
			return err != nil
		})
	}
}

// An engine that cannot run the image leaves no container, and testenv says what the client said.
func TestContainer_ThatDoesNotStartIsReportedAndRemoved(t *testing.T) {
	calls := filepath.Join(t.TempDir(), "calls")
	bin := t.TempDir()
	client := fmt.Sprintf("#!/bin/sh\necho \"$*\" >>%s\n[ \"$1\" != run ] || { echo no room; exit 125; }\n", calls)
	if err := os.WriteFile(filepath.Join(bin, "docker"), []byte(client), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	dir := &runDir{path: "/tmp/idem-testenv-x"}
	_, err := startContainer(t.Context(), config{image: "postgres:99", settings: settings{"fsync=off"}}, dir)
	if err == nil || err.Error() != "docker run: no room" {
		t.Errorf("got %v", err)
	}
	said, _ := os.ReadFile(calls)
	for _, want := range []string{"--tmpfs /pgdata:rw postgres:99 postgres -c fsync=off\n", "\nrm -f -v idem-testenv-x\n"} {
		if !strings.Contains(string(said), want) {
			t.Errorf("the client was not called with %q:\n%s", want, said)
		}
	}
}
