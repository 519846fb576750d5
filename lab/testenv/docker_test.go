package main

import (
	"fmt"
	"net"
	"os"
	"strconv"
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
		// After a SIGKILL, testcontainers' reaper removes the container soon. If the reaper is
		// disabled, the next start of testenv does.
		if err := testenv(t, containerEnv(), "true").Run(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the container is gone", func() bool {
			_, err := docker.ContainerInspect(t.Context(), id, client.ContainerInspectOptions{})
			return err != nil
		})
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
