package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/idem-go/idem/lab/optional"
	"github.com/idem-go/idem/lab/pgserver/child"
)

const (
	engineLimit = 15 * time.Second // for the Docker engine's first answer
	runLimit    = 5 * time.Minute  // to pull the image and to start the container
	readyLimit  = 5 * time.Minute  // for the server in the container; a container that exits is noticed at once
)

// startContainer runs the image in a container. A shell removes the container when testenv ends,
// even by SIGKILL.
func startContainer(ctx context.Context, cfg config, dir *runDir) (*server, error) {
	if err := pingEngine(ctx); err != nil {
		return nil, err
	}
	name := filepath.Base(dir.path)
	removal, err := child.NewGuard(`docker rm --force --volumes "$0" >/dev/null 2>&1; ! docker container inspect "$0" >/dev/null 2>&1`, name)
	if err != nil {
		return nil, err
	}
	stop := func() {
		if err := removal.Run(); err != nil {
			say("left behind: container %s: %v", name, err)
		}
	}
	address, err := runContainer(ctx, cfg, name)
	if err == nil {
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			_, _ = docker(ctx, "wait", name)
		}()
		err = waitReady(ctx, address, readyLimit, gone)
	}
	if err != nil {
		logs, _ := docker(context.WithoutCancel(ctx), "logs", "--tail", "20", name)
		stop()
		return nil, fmt.Errorf("%w\n%s", err, logs)
	}
	return &server{url: address, what: "Docker, " + cfg.image, stop: stop}, nil
}

// pingEngine returns an error unless a Docker engine answers within engineLimit.
func pingEngine(ctx context.Context) error {
	if _, err := optional.Find("docker"); err != nil {
		return fmt.Errorf("%w (%w)", err, errAbsent)
	}
	limited, cancel := context.WithTimeout(ctx, engineLimit)
	defer cancel()
	_, err := docker(limited, "version", "--format", "{{.Server.Version}}")
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case limited.Err() != nil:
		return fmt.Errorf("the engine did not answer within %v", engineLimit)
	case err != nil:
		return fmt.Errorf("no engine answers: %w", err)
	}
	return nil
}

// runContainer starts a container and returns the address of its server, which may not accept
// connections yet. The data is in memory unless it has to be durable.
func runContainer(ctx context.Context, cfg config, name string) (address string, err error) {
	host, err := engineHost(ctx)
	if err != nil {
		return "", err
	}
	publish := "5432"
	if host == loopback {
		publish = loopback + "::5432"
	}
	// This data directory works with every version of the official image.
	args := []string{"run", "--detach", "--name", name, "--publish", publish, "--env", "POSTGRES_PASSWORD", "--env", "PGDATA=/pgdata/data"}
	if !cfg.settings.durable() {
		args = append(args, "--tmpfs", "/pgdata")
	}
	args = append(args, cfg.image, "postgres")
	for _, setting := range cfg.settings {
		args = append(args, "-c", setting)
	}
	run, password := exec.Command("docker", args...), rand.Text()
	run.Env, run.Stderr = append(os.Environ(), "POSTGRES_PASSWORD="+password), os.Stderr // the progress of a pull
	process, err := child.Start(run, syscall.SIGKILL)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, runLimit)
	defer cancel()
	select {
	case <-process.Done():
	case <-ctx.Done():
		process.Kill()
		return "", fmt.Errorf("run %s: %w", cfg.image, ctx.Err())
	}
	if !run.ProcessState.Success() {
		return "", fmt.Errorf("run %s: docker run: %v", cfg.image, run.ProcessState)
	}
	published, err := docker(ctx, "port", name, "5432/tcp") // a line for each address, such as 0.0.0.0:49153
	if err != nil {
		return "", err
	}
	line, _, _ := strings.Cut(published, "\n")
	_, port, err := net.SplitHostPort(line)
	return fmt.Sprintf("postgres://postgres:%s@%s/postgres?sslmode=disable", password, net.JoinHostPort(host, port)), err
}

const loopback = "127.0.0.1"

// engineHost returns the host on which the engine publishes ports. For an engine that is reached
// through a socket, it is the loopback address.
func engineHost(ctx context.Context) (string, error) {
	endpoint, err := docker(ctx, "context", "inspect", "--format", "{{.Endpoints.docker.Host}}")
	if err != nil {
		return "", err
	}
	address, err := url.Parse(endpoint)
	if err != nil {
		return "", err
	}
	return cmp.Or(address.Hostname(), loopback), nil
}

// docker runs a command of the Docker client and returns its output.
func docker(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "docker", args...).CombinedOutput()
	text := string(bytes.TrimSpace(out))
	if err != nil {
		return "", fmt.Errorf("docker %s: %s (%w)", args[0], text, err)
	}
	return text, nil
}
