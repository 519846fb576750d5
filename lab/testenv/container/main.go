// Container runs a Postgres server in a Docker container for testenv. It is a separate program, so
// that a machine without Docker neither downloads nor compiles the Docker libraries.
//
//	container -image IMAGE -run DIRECTORY [-durable] [name=value]...
//
// Container prints the address of the server once the container runs, or an error. The server may
// not accept connections yet. Container removes the Docker container when its standard input ends,
// which also happens when testenv is killed.
package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/moby/moby/api/pkg/authconfig"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	tclog "github.com/testcontainers/testcontainers-go/log"
	"github.com/testcontainers/testcontainers-go/modules/postgres"
)

const (
	engineLimit = 15 * time.Second // maximum time until the engine's first answer
	pullLimit   = 5 * time.Minute
	runLimit    = 5 * time.Minute // maximum time to create and start the container and testcontainers' reaper
)

type config struct {
	image    string
	run      string // the directory of a testenv run, which exists as long as the run
	durable  bool
	settings []string
}

func main() {
	var cfg config
	flag.StringVar(&cfg.image, "image", "", "`name` of the image")
	flag.StringVar(&cfg.run, "run", "", "`directory` that exists while the container is needed")
	flag.BoolVar(&cfg.durable, "durable", false, "keep the data on a disk instead of in memory")
	flag.Parse()
	cfg.settings = flag.Args()
	// A terminal sends Ctrl-C to this process as well. The signals are ignored, because testenv
	// decides when the container ends, by closing the standard input.
	signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	if err := serve(ctx, cfg); err != nil && ctx.Err() == nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// serve runs the container until ctx ends. It fails if the container ends by itself.
func serve(ctx context.Context, cfg config) error {
	tclog.SetDefault(tclog.NewNoopLogger())
	provider, err := connectEngine(ctx)
	if err != nil {
		return err
	}
	defer provider.Close()
	removeAbandoned(ctx, provider.Client())
	if err := pull(ctx, provider, cfg.image); err != nil {
		return fmt.Errorf("pull %s: %w", cfg.image, err)
	}
	c, err := start(ctx, cfg)
	if err != nil {
		return fmt.Errorf("run %s: %w (if testcontainers' reaper cannot start: TESTCONTAINERS_RYUK_DISABLED=true)", cfg.image, err)
	}
	defer remove(c)
	address, err := c.ConnectionString(ctx, "sslmode=disable")
	if err != nil {
		return err
	}
	exited := provider.Client().ContainerWait(ctx, c.GetContainerID(), client.ContainerWaitOptions{})
	fmt.Println(address)
	select {
	case <-exited.Result:
		return errors.New("the container ended: " + logTail(context.WithoutCancel(ctx), c))
	case <-ctx.Done():
		return nil
	}
}

// connectEngine connects to the engine that testcontainers finds through DOCKER_HOST, the Docker
// context or the usual sockets. It fails if the engine does not answer within engineLimit. A
// goroutine makes the connection, because testcontainers has no time limit for it.
func connectEngine(ctx context.Context) (*testcontainers.DockerProvider, error) {
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
			return nil, fmt.Errorf("no Docker engine answers: %w", r.err)
		}
		return r.provider, nil
	case <-time.After(engineLimit):
		return nil, fmt.Errorf("the engine did not answer within %v", engineLimit)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// pull fetches the image if the engine does not have it. It tries only once. Testcontainers would
// retry for a quarter of an hour on a machine without a network, although testenv can use installed
// programs there.
func pull(ctx context.Context, provider *testcontainers.DockerProvider, image string) error {
	docker := provider.Client()
	if _, err := docker.ImageInspect(ctx, image); err == nil {
		return nil
	}
	if provider.Config().Config.HubImageNamePrefix != "" {
		return nil // testcontainers will run an image with another name
	}
	fmt.Fprintf(os.Stderr, "testenv: pulling %s\n", image)
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

// Labels of a container: the directory of its testenv run, and the name of its host. A later run
// finds abandoned containers by these labels.
const (
	runLabel  = "com.github.idem-go.testenv.run"
	hostLabel = "com.github.idem-go.testenv.host"
)

func start(ctx context.Context, cfg config) (*postgres.PostgresContainer, error) {
	command := []string{"postgres"}
	for _, setting := range cfg.settings {
		command = append(command, "-c", setting)
	}
	host, _ := os.Hostname()
	options := []testcontainers.ContainerCustomizer{
		testcontainers.WithCmd(command...),
		postgres.WithPassword(rand.Text()), // the port may be reachable from the network
		// This directory works with every version of the official image.
		testcontainers.WithEnv(map[string]string{"PGDATA": "/pgdata/data"}),
		testcontainers.WithLabels(map[string]string{runLabel: cfg.run, hostLabel: host}),
	}
	if !cfg.durable {
		options = append(options, testcontainers.WithTmpfs(map[string]string{"/pgdata": "rw"}))
	}
	ctx, cancel := context.WithTimeout(ctx, runLimit)
	defer cancel()
	c, err := postgres.Run(ctx, cfg.image, options...)
	if err != nil {
		remove(c)
		return nil, err
	}
	return c, nil
}

func logTail(ctx context.Context, c *postgres.PostgresContainer) string {
	logs, err := c.Logs(ctx)
	if err != nil {
		return err.Error()
	}
	defer logs.Close()
	text, _ := io.ReadAll(logs)
	return string(bytes.TrimSpace(text[max(0, len(text)-2000):]))
}

// remove removes the container and its volumes.
func remove(c *postgres.PostgresContainer) {
	if c == nil {
		return
	}
	if err := testcontainers.TerminateContainer(c, testcontainers.StopTimeout(0)); err != nil {
		fmt.Fprintf(os.Stderr, "testenv: left behind: container %s: %v\n", c.GetContainerID(), err)
	}
}

// removeAbandoned removes the containers of runs on this host whose directory is gone.
// Testcontainers' reaper does the same, but some engines require that the reaper is disabled.
func removeAbandoned(ctx context.Context, docker client.APIClient) {
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
			fmt.Fprintf(os.Stderr, "testenv: removed container %.12s, left by a run that was killed\n", c.ID)
		}
	}
}
