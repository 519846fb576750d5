package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"

	"github.com/idem-go/idem/lab/optional"
)

func TestContainer_ServesAndIsRemoved(t *testing.T) {
	t.Parallel()
	docker := requireEngine(t)
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGKILL} {
		proc := startTestenv(t, containerEnv(), "-c", "max_connections=57")
		if got := proc.report.MaxConnections; got != "57" || !proc.report.Migrated {
			t.Errorf("max_connections is %s, migrated: %v; want 57 and true", got, proc.report.Migrated)
		}
		id := containerOf(t, docker, proc.report.Address)
		proc.signal(t, sig)
		proc.wait(t)
		if sig == syscall.SIGINT {
			if _, err := docker.ContainerInspect(t.Context(), id, client.ContainerInspectOptions{}); err == nil {
				t.Errorf("container %s is still there", id)
			}
			continue
		}
		// Testcontainers' reaper removes the container soon. If the reaper is disabled, the next
		// start of testenv does.
		if err := testenv(t, containerEnv(), "true").Run(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the container is gone", func() bool {
			_, err := docker.ContainerInspect(t.Context(), id, client.ContainerInspectOptions{})
			return err != nil
		})
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

// requireEngine skips a test if no Docker engine answers. It fails the test if tests must not be
// skipped.
func requireEngine(t *testing.T) client.APIClient {
	t.Helper()
	if err := pingEngine(t.Context()); err != nil {
		optional.Require(t, fmt.Errorf("%w: %w", optional.Needs("docker"), err))
	}
	docker, err := testcontainers.NewDockerClientWithOpts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { docker.Close() })
	return docker
}

func containerEnv() []string {
	return []string{"IDEM_TEST_POSTGRES=docker", "IDEM_TEST_POSTGRES_IMAGE=" + os.Getenv("IDEM_TEST_POSTGRES_IMAGE")}
}

// runLabel is the label in which the program in ./container stores the directory of the run.
const runLabel = "com.github.idem-go.testenv.run"

// containerOf returns the id of the container that publishes the port of the address.
func containerOf(t *testing.T, docker client.APIClient, address string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	list, err := docker.ContainerList(t.Context(), client.ContainerListOptions{
		Filters: client.Filters{}.Add("label", runLabel),
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range list.Items {
		for _, p := range c.Ports {
			if strconv.Itoa(int(p.PublicPort)) == port {
				return c.ID
			}
		}
	}
	t.Fatalf("none of %d containers publishes port %s", len(list.Items), port)
	return ""
}
