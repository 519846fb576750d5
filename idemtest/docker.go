package idemtest

import (
	"context"
	"crypto/rand"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// dockerScript is a shell script that runs Postgres in a container until the standard input of the
// script ends (see localScript). The first line of its output is the host and port of the server.
// An empty line means that the container did not start.
const dockerScript = `
trap '' INT TERM HUP
if docker run -d --rm --name "$1" -p 127.0.0.1::5432 -e POSTGRES_PASSWORD=idemtest "$2" -c fsync=off -c max_connections=300 >/dev/null 2>&1; then
	docker port "$1" 5432/tcp | head -n 1
else
	echo
fi
read -r end
docker rm -f -v "$1" >/dev/null 2>&1
`

const dockerImage = "postgres:17-alpine"

// startDocker starts a Postgres server in a container and returns its connection string. It fails
// if docker is not running or cannot run the image.
func startDocker() (address string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := exec.CommandContext(ctx, "docker", "version").Run(); err != nil {
		return "", fmt.Errorf("docker: %w", err)
	}
	line, err := startScript(exec.Command("sh", "-c", dockerScript, "idemtest", "idemtest-"+strings.ToLower(rand.Text()[:12]), dockerImage))
	if err == nil && line == "" {
		err = fmt.Errorf("docker cannot run %s", dockerImage)
	}
	return "postgres://postgres:idemtest@" + line + "/postgres?sslmode=disable", err
}
