package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/idem-go/idem/lab/pgserver/child"
)

const (
	engineLimit = 15 * time.Second // for the Docker engine's first answer
	readyLimit  = 5 * time.Minute  // for the server in the container; a container that exits is noticed at once
)

// startContainer runs the image with the Docker client. The container is removed when testenv ends,
// even by SIGKILL.
func startContainer(ctx context.Context, cfg config, dir *runDir) (_ *server, err error) {
	if err := pingEngine(ctx); err != nil {
		return nil, err
	}
	if _, err := docker(ctx, "image", "inspect", cfg.image); err != nil {
		say("pulling %s", cfg.image)
		if _, err := docker(ctx, "pull", "--quiet", cfg.image); err != nil {
			return nil, err
		}
	}
	name, password := filepath.Base(dir.path), rand.Text()
	removal, err := child.NewGuard(`docker rm -f -v "$0" >/dev/null 2>&1`, name)
	if err != nil {
		return nil, err
	}
	remove := func() {
		if err := removal.Run(); err != nil {
			say("left behind: container %s: %v", name, err)
		}
	}
	defer func() {
		if err != nil {
			remove()
		}
	}()
	// This data directory works with every version of the official image.
	args := []string{"run", "--detach", "--name", name, "--publish", "127.0.0.1::5432", "--env", "POSTGRES_PASSWORD=" + password, "--env", "PGDATA=/pgdata/data"}
	if !cfg.settings.durable() {
		args = append(args, "--tmpfs", "/pgdata:rw")
	}
	args = append(args, cfg.image, "postgres")
	for _, setting := range cfg.settings {
		args = append(args, "-c", setting)
	}
	if _, err := docker(ctx, args...); err != nil {
		return nil, err
	}
	ports, err := docker(ctx, "port", name, "5432/tcp")
	if err != nil {
		return nil, err
	}
	address, _, _ := strings.Cut(ports, "\n")
	url := "postgres://postgres:" + password + "@" + address + "/postgres?sslmode=disable"
	gone := make(chan struct{})
	waiting, stopWaiting := context.WithCancel(ctx)
	defer stopWaiting()
	go func() {
		docker(waiting, "wait", name)
		close(gone)
	}()
	if err := waitReady(ctx, url, readyLimit, gone); err != nil {
		log, _ := docker(context.WithoutCancel(ctx), "logs", "--tail", "20", name)
		return nil, errors.Join(err, errors.New(log))
	}
	return &server{url: url, what: "Docker, " + cfg.image, stop: remove}, nil
}

// pingEngine returns an error unless a Docker engine answers within engineLimit.
func pingEngine(ctx context.Context) error {
	if _, err := exec.LookPath("docker"); err != nil {
		return fmt.Errorf("%w (%w)", err, errAbsent)
	}
	limited, cancel := context.WithTimeout(ctx, engineLimit)
	defer cancel()
	_, err := docker(limited, "version", "--format", "{{.Server.Version}}")
	if err != nil && ctx.Err() == nil && limited.Err() != nil {
		return fmt.Errorf("the engine did not answer within %v", engineLimit)
	}
	return err
}

// docker runs the Docker client and returns its output, or what it says as an error.
func docker(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "docker", args...)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	text := string(bytes.TrimSpace(out))
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	if err != nil {
		return "", fmt.Errorf("docker %s: %s", args[0], text)
	}
	return text, nil
}
