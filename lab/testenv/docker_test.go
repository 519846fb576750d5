package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/idem-go/idem/lab/optional"
)

func TestContainer_ServesAndIsRemoved(t *testing.T) {
	t.Parallel()
	if err := pingEngine(t.Context()); err != nil {
		optional.Require(t, fmt.Errorf("%w: %w", optional.Needs("docker"), err))
	}
	env := []string{"IDEM_TEST_POSTGRES=docker", "IDEM_TEST_POSTGRES_IMAGE=" + os.Getenv("IDEM_TEST_POSTGRES_IMAGE")}
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGKILL} {
		proc := startTestenv(t, env, "-c", "max_connections=57")
		if got := proc.report.MaxConnections; got != "57" || !proc.report.Migrated {
			t.Errorf("max_connections is %s, migrated: %v; want 57 and true", got, proc.report.Migrated)
		}
		_, port, err := net.SplitHostPort(proc.report.Address)
		if err != nil {
			t.Fatal(err)
		}
		id, err := docker(t.Context(), "ps", "--quiet", "--filter", "publish="+port)
		if err != nil || id == "" {
			t.Fatalf("no container publishes port %s, %v", port, err)
		}
		isThere := func() bool {
			_, err := docker(t.Context(), "container", "inspect", id)
			return err == nil
		}
		proc.signal(t, sig)
		proc.wait(t)
		if sig == syscall.SIGINT && isThere() {
			t.Errorf("container %s is still there", id)
		}
		eventually(t, "the container is gone", func() bool { return !isThere() })
	}
}

func TestEngine_ThatHangsIsPassedBy(t *testing.T) {
	t.Parallel()
	hangs, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer hangs.Close()
	cmd := testenv(t, []string{"IDEM_TEST_POSTGRES=", "DOCKER_HOST=tcp://" + hangs.Addr().String()}, "true")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		t.Errorf("%v: %s", err, stderr.String())
	}
	for _, want := range []string{"not using docker: the engine did not answer", "(local, "} {
		if !strings.Contains(stderr.String(), want) {
			t.Errorf("%q is missing in:\n%s", want, stderr.String())
		}
	}
}
