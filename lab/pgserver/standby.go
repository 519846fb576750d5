package pgserver

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// Standby creates a streaming replica of a running server by a base backup, and starts it. name is
// its application_name on the primary, for use in synchronous_standby_names. The replica uses the
// programs and the password of the primary. PostgreSQL requires some settings of the replica, such
// as max_connections, to be at least as high as on the primary.
func (s *Server) Standby(ctx context.Context, name string, opts Options) (*Server, error) {
	opts.Bin = s.opts.Bin
	standby, err := newServer(opts, s.password)
	if err != nil {
		return nil, err
	}
	if err := standby.follow(ctx, s, name); err != nil {
		standby.Close()
		return nil, err
	}
	return standby, nil
}

func (s *Server) follow(ctx context.Context, primary *Server, name string) error {
	args := []string{"-D", s.opts.Data, "-h", "127.0.0.1", "-p", strconv.Itoa(primary.port), "-U", "postgres",
		"--checkpoint=fast", "--wal-method=stream", "--no-sync"}
	if s.opts.WAL != "" {
		args = append(args, "--waldir", s.opts.WAL)
	}
	backup := s.program(ctx, "pg_basebackup", args...)
	backup.Env = append(backup.Env, "PGPASSWORD="+s.password)
	if err := finish(backup); err != nil {
		return err
	}
	signal := filepath.Join(s.opts.Data, "standby.signal")
	if err := os.WriteFile(signal, nil, 0o600); err != nil {
		return err
	}
	if err := s.give(signal); err != nil {
		return err
	}
	if err := s.setPrimary(primary, name); err != nil {
		return err
	}
	return s.Start(ctx)
}

// setPrimary writes the connection to the primary into a configuration file. The connection
// contains a password, so it must not be in the command line, which every user can read.
func (s *Server) setPrimary(primary *Server, name string) error {
	file, err := os.OpenFile(filepath.Join(s.opts.Data, "postgresql.auto.conf"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = fmt.Fprintf(file, "primary_conninfo = 'host=127.0.0.1 port=%d user=postgres password=%s application_name=%s'\n",
		primary.port, primary.password, name)
	return err
}

// Promote makes a standby the primary of a new timeline. It returns when the server accepts writes.
func (s *Server) Promote(ctx context.Context) error {
	return finish(s.program(ctx, "pg_ctl", "promote", "--wait", "--timeout=60", "-D", s.opts.Data))
}
