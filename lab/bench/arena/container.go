package arena

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/lab/optional"
)

// startContainer runs the image at IDEM_TEST_POSTGRES_IMAGE, if that is of the right version, on the host's own network:
// a bridge would be one more thing on the way.
func (s *Server) startContainer(ctx context.Context) error {
	image := os.Getenv("IDEM_TEST_POSTGRES_IMAGE")
	if image == "" {
		return fmt.Errorf("PostgreSQL %d is %w: needs package postgresql-%d, or an image in IDEM_TEST_POSTGRES_IMAGE", s.Major, ErrAbsent, s.Major)
	}
	if s.env != nil {
		return fmt.Errorf("a slow disk in a container is %w", ErrAbsent)
	}
	if _, err := optional.Find("docker"); err != nil {
		return fmt.Errorf("PostgreSQL %d is %w: %w", s.Major, ErrAbsent, err)
	}
	port, err := freePort()
	if err != nil {
		return err
	}
	s.From = "container, " + image
	password := rand.Text()
	args := []string{"run", "--detach", "--rm", "--network", "host", "--shm-size", "2g", "--env", "POSTGRES_PASSWORD=" + password, image, "postgres"}
	for _, setting := range append(s.Settings(), "port="+port, "listen_addresses=127.0.0.1") {
		args = append(args, "-c", setting)
	}
	out, err := exec.CommandContext(ctx, "docker", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("PostgreSQL %d is %w: docker: %w: %s", s.Major, ErrAbsent, err, bytes.TrimSpace(out))
	}
	lines := strings.Fields(string(out))
	id := lines[len(lines)-1]
	s.stop = func() error { return exec.Command("docker", "rm", "--force", "--volumes", id).Run() }
	s.dsn = fmt.Sprintf("postgres://postgres:%s@127.0.0.1:%s/postgres?sslmode=disable", password, port)
	if err := s.awaitContainer(ctx); err != nil {
		s.stop()
		return err
	}
	return nil
}

// awaitContainer waits until the server has the right version and goes on to answer: the entry point of the official
// image starts one first that it stops again.
func (s *Server) awaitContainer(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var err error
	for answers := 0; answers < 3; {
		var conn *pgx.Conn
		if conn, err = pgx.Connect(ctx, s.dsn); err == nil {
			answers++
			var major int
			err = conn.QueryRow(ctx, "select current_setting('server_version_num')::int / 10000").Scan(&major)
			conn.Close(ctx)
			if err == nil && major != s.Major {
				return fmt.Errorf("PostgreSQL %d is %w: IDEM_TEST_POSTGRES_IMAGE has %d", s.Major, ErrAbsent, major)
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the container does not answer: %w", err)
		case <-time.After(300 * time.Millisecond):
		}
	}
	return nil
}
