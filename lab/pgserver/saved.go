package pgserver

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
)

// SavedData is the environment variable that names a directory written by [Server.SaveData]. A new
// server of the same installation copies the data from there instead of running initdb, which would
// take ten times the processor time.
const SavedData = "IDEM_TEST_SAVED_DATA"

// SaveData writes the data and the password of the server into the existing directory dir, for
// [SavedData]. The server must never have been started.
func (s *Server) SaveData(ctx context.Context, dir string) error {
	for name, text := range map[string]string{"password": s.password, "bin": s.opts.Bin} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return copyData(ctx, s.opts.Data, filepath.Join(dir, "data"))
}

// loadData copies saved data into the data directory. It reports false if there is no saved data,
// if the data is from another installation, or if the server has a WAL directory of its own.
func (s *Server) loadData(ctx context.Context) (loaded bool, err error) {
	dir := os.Getenv(SavedData)
	if _, err := os.Lstat(s.opts.Data); err == nil || dir == "" || s.opts.WAL != "" {
		return false, nil
	}
	password, err := os.ReadFile(filepath.Join(dir, "password"))
	if err != nil {
		return false, err
	}
	bin, err := os.ReadFile(filepath.Join(dir, "bin"))
	if err != nil || !bytes.Equal(bin, []byte(s.opts.Bin)) {
		return false, err
	}
	s.password = string(password)
	return true, copyData(ctx, filepath.Join(dir, "data"), s.opts.Data)
}

// copyData copies a data directory and keeps the owner and mode of each file.
func copyData(ctx context.Context, from, to string) error {
	return finish(exec.CommandContext(ctx, "cp", "-Rp", from, to))
}
