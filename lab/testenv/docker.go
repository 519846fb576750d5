package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/moby/moby/api/pkg/authconfig"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	tclog "github.com/testcontainers/testcontainers-go/log"
	"github.com/testcontainers/testcontainers-go/modules/postgres"
)

const (
	engineLimit = 15 * time.Second // to answer at all
	pullLimit   = 5 * time.Minute
	runLimit    = 5 * time.Minute // to create and start a container, and testcontainers' own reaper
	readyLimit  = 5 * time.Minute // a server that ends while it starts is noticed at once
)

// startContainer runs the image on the Docker engine that testcontainers finds: DOCKER_HOST, the Docker context, the
// usual sockets.
func startContainer(ctx context.Context, cfg config, dir *runDir) (*server, error) {
	tclog.SetDefault(tclog.NewNoopLogger())
	provider, err := engine(ctx)
	if err != nil {
		return nil, err
	}
	defer provider.Close()
	reapContainers(ctx, provider.Client())
	if err := pull(ctx, provider, cfg.image); err != nil {
		return nil, fmt.Errorf("pull %s: %w", cfg.image, err)
	}
	c, err := runContainer(ctx, cfg, dir)
	if err != nil {
		return nil, err
	}
	address, err := c.serve(ctx, provider.Client())
	if err != nil {
		c.remove()
		return nil, err
	}
	return &server{url: address, what: "Docker, " + cfg.image, stop: c.remove}, nil
}

// engine connects to Docker. It does not wait for one that is installed but hangs.
func engine(ctx context.Context) (*testcontainers.DockerProvider, error) {
	if !dockerInstalled() {
		return nil, fmt.Errorf("no Docker client, socket or DOCKER_HOST (%w)", errAbsent)
	}
	type result struct {
		provider *testcontainers.DockerProvider
		err      error
	}
	found := make(chan result, 1)
	go func() {
		provider, err := testcontainers.NewDockerProvider()
		if err == nil {
			err = provider.Health(ctx)
		}
		found <- result{provider, err}
	}()
	select {
	case r := <-found:
		if r.err != nil {
			return nil, fmt.Errorf("no engine answers: %w", r.err)
		}
		return r.provider, nil
	case <-time.After(engineLimit):
		return nil, fmt.Errorf("the engine did not answer within %v", engineLimit)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func dockerInstalled() bool {
	if os.Getenv("DOCKER_HOST") != "" {
		return true
	}
	if _, err := exec.LookPath("docker"); err == nil {
		return true
	}
	_, err := os.Stat("/var/run/docker.sock")
	return err == nil
}

// pull fetches the image if the engine does not have it. Testcontainers would try for a quarter of an hour on a machine
// without a network; one attempt is enough to go on to the programs that are installed.
func pull(ctx context.Context, provider *testcontainers.DockerProvider, image string) error {
	docker := provider.Client()
	if _, err := docker.ImageInspect(ctx, image); err == nil {
		return nil
	}
	if provider.Config().Config.HubImageNamePrefix != "" {
		return nil // the image that will run has another name
	}
	say("pulling %s, once", image)
	ctx, cancel := context.WithTimeout(ctx, pullLimit)
	defer cancel()
	var options client.ImagePullOptions
	if _, auth, err := testcontainers.DockerImageAuth(ctx, image); err == nil {
		if options.RegistryAuth, err = authconfig.Encode(auth); err != nil {
			return err
		}
	}
	progress, err := docker.ImagePull(ctx, image, options)
	if err != nil {
		return err
	}
	return progress.Wait(ctx)
}

// container is a Postgres that runs in one.
type container struct {
	*postgres.PostgresContainer
}

func runContainer(ctx context.Context, cfg config, dir *runDir) (*container, error) {
	options := []testcontainers.ContainerCustomizer{
		testcontainers.WithCmd(append([]string{"postgres"}, cfg.settings.args()...)...),
		postgres.WithPassword(rand.Text()), // the port may be open to the network
		// A place that is the same in every version of the official image.
		testcontainers.WithEnv(map[string]string{"PGDATA": "/pgdata/data"}),
		testcontainers.WithLabels(runLabels(dir)),
	}
	if !cfg.settings.durable() {
		options = append(options, testcontainers.WithTmpfs(map[string]string{"/pgdata": "rw"}))
	}
	ctx, cancel := context.WithTimeout(ctx, runLimit)
	defer cancel()
	c, err := postgres.Run(ctx, cfg.image, options...)
	if err != nil {
		(&container{c}).remove()
		return nil, fmt.Errorf("run %s: %w (if it is testcontainers' reaper that cannot start: TESTCONTAINERS_RYUK_DISABLED=true)", cfg.image, err)
	}
	return &container{c}, nil
}

// serve waits until the server in the container answers, and returns its address.
func (c *container) serve(ctx context.Context, docker client.APIClient) (string, error) {
	watch, cancel := context.WithCancel(ctx)
	defer cancel()
	gone := make(chan struct{})
	exited := docker.ContainerWait(watch, c.GetContainerID(), client.ContainerWaitOptions{})
	go func() {
		select {
		case <-exited.Result:
			close(gone)
		case <-watch.Done():
		}
	}()
	address, err := c.ConnectionString(ctx, "sslmode=disable")
	if err == nil {
		err = waitReady(ctx, address, readyLimit, gone)
	}
	if err != nil {
		return "", errors.Join(err, errors.New(c.logTail(ctx)))
	}
	return address, nil
}

func (c *container) logTail(ctx context.Context) string {
	logs, err := c.Logs(ctx)
	if err != nil {
		return err.Error()
	}
	defer logs.Close()
	text, _ := io.ReadAll(logs)
	return string(bytes.TrimSpace(text[max(0, len(text)-2000):]))
}

// remove takes the container and its volumes away, running or not.
func (c *container) remove() {
	if c.PostgresContainer == nil {
		return
	}
	if err := testcontainers.TerminateContainer(c, testcontainers.StopTimeout(0)); err != nil {
		say("left behind: container %s: %v", c.GetContainerID(), err)
	}
}

const (
	runLabel  = "com.github.idem-go.testenv.run"
	hostLabel = "com.github.idem-go.testenv.host"
)

func runLabels(dir *runDir) map[string]string {
	host, _ := os.Hostname()
	return map[string]string{runLabel: dir.path, hostLabel: host}
}

// reapContainers removes what killed runs on this host left, where testcontainers' reaper is disabled. A run is over
// when its directory is gone, which newRunDir sees to.
func reapContainers(ctx context.Context, docker client.APIClient) {
	host, _ := os.Hostname()
	list, err := docker.ContainerList(ctx, client.ContainerListOptions{
		All:     true,
		Filters: client.Filters{}.Add("label", hostLabel+"="+host),
	})
	if err != nil {
		return
	}
	for _, c := range list.Items {
		if _, err := os.Stat(c.Labels[runLabel]); !errors.Is(err, os.ErrNotExist) {
			continue
		}
		options := client.ContainerRemoveOptions{Force: true, RemoveVolumes: true}
		if _, err := docker.ContainerRemove(ctx, c.ID, options); err == nil {
			say("removed container %.12s, left by a run that was killed", c.ID)
		}
	}
}
