package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/idem-go/idem/lab/optional"
)

const (
	engineLimit = 15 * time.Second // maximum time until the Docker engine's first answer
	readyLimit  = 5 * time.Minute  // maximum time until the server answers, if the container does not exit
)

// startContainer builds and runs the program in ./container, which runs the image. It first checks
// that a Docker engine answers, so that a machine without an engine does not compile the program
// and the Docker libraries.
func startContainer(ctx context.Context, cfg config, dir *runDir) (*server, error) {
	if err := pingEngine(ctx); err != nil {
		return nil, err
	}
	program, err := buildContainer(ctx, dir)
	if err != nil {
		return nil, err
	}
	args := []string{"-image", cfg.image, "-run", dir.path}
	if cfg.settings.durable() {
		args = append(args, "-durable")
	}
	c, err := runContainer(ctx, exec.Command(program, append(args, cfg.settings...)...))
	if err != nil {
		return nil, err
	}
	if err := waitReady(ctx, c.url, readyLimit, c.gone); err != nil {
		c.remove()
		return nil, errors.Join(err, c.reason())
	}
	return &server{url: c.url, what: "Docker, " + cfg.image, stop: c.remove}, nil
}

// pingEngine returns an error unless a Docker engine appears to be available. It asks the Docker
// client, which knows the Docker contexts, and gives up after engineLimit. Without a client, the
// existence of a socket or of DOCKER_HOST is enough.
func pingEngine(ctx context.Context) error {
	client, err := exec.LookPath("docker")
	if err != nil {
		if _, err := optional.Find("docker"); err != nil {
			return fmt.Errorf("%w (%w)", err, errAbsent)
		}
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, engineLimit)
	defer cancel()
	out, err := exec.CommandContext(limited, client, "version", "--format", "{{.Server.Version}}").CombinedOutput()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case limited.Err() != nil:
		return fmt.Errorf("the engine did not answer within %v", engineLimit)
	case err != nil:
		return fmt.Errorf("no engine answers: %s", bytes.TrimSpace(out))
	}
	return nil
}

// buildContainer builds the program in ./container. It finds the source relative to its own
// executable, <repository>/bin/testenv. In a test, the source is in the current directory.
func buildContainer(ctx context.Context, dir *runDir) (program string, err error) {
	source := "."
	if self, err := os.Executable(); err == nil {
		if beside := filepath.Join(filepath.Dir(self), "..", "lab", "testenv"); isDir(filepath.Join(beside, "container")) {
			source = beside
		}
	}
	program = filepath.Join(dir.path, "container")
	out, err := exec.CommandContext(ctx, "go", "-C", source, "build", "-o", program, "./container").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build the program that runs containers: %w\n%s", err, out)
	}
	return program, nil
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// container is a running process of the program in ./container.
type container struct {
	url    string
	input  io.Closer     // closing it removes the container
	gone   chan struct{} // closed when the process has ended
	output string        // what the process printed after the address; valid once gone is closed
}

// runContainer starts the program and waits for the address that the program prints.
func runContainer(ctx context.Context, cmd *exec.Cmd) (*container, error) {
	c := &container{gone: make(chan struct{})}
	cmd.Stderr = os.Stderr // progress of the program
	input, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	c.input = input
	output, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	// The first line of the output is the address. Everything else explains why the program ended.
	address := make(chan string, 1)
	go func() {
		defer close(c.gone)
		lines := bufio.NewReader(output)
		line, _ := lines.ReadString('\n')
		if strings.HasPrefix(line, "postgres://") {
			address <- strings.TrimSpace(line)
			line = ""
		}
		rest, _ := io.ReadAll(lines)
		c.output = line + string(rest)
		cmd.Wait()
	}()
	select {
	case c.url = <-address:
		return c, nil
	case <-c.gone:
		return nil, c.reason()
	case <-ctx.Done():
		c.remove()
		return nil, ctx.Err()
	}
}

func (c *container) reason() error { return errors.New(strings.TrimSpace(c.output)) }

// remove makes the process remove its container, and waits for the end of the process.
func (c *container) remove() {
	c.input.Close()
	<-c.gone
}
