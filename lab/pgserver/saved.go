package pgserver

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
)

// SavedData is the environment variable that names a directory made by [Server.SaveData]. Servers of the same installation
// begin with a copy of the data in it: that takes a tenth of the processor time of initdb.
const SavedData = "IDEM_TEST_SAVED_DATA"

// SaveData saves the data and the password of a server that has never run into an existing directory, for [SavedData].
func (s *Server) SaveData(ctx context.Context, dir string) error {
	for name, text := range map[string]string{"password": s.password, "bin": s.opts.Bin} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return copyData(ctx, s.opts.Data, filepath.Join(dir, "data"))
}

// loadData makes the data directory a copy of saved data, if there is any that fits.
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

// copyData copies a data directory, with the owner and the rights of each file.
func copyData(ctx context.Context, from, to string) error {
	return finish(exec.CommandContext(ctx, "cp", "-Rp", from, to))
}
