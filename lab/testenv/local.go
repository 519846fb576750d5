package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/idem-go/idem/lab/pgserver"
)

// startLocal starts a server from an installation on this machine. Before the first start it saves
// a copy of the new data directory, from which pgserver can create further servers without initdb.
func startLocal(ctx context.Context, cfg config, dir *runDir) (*server, error) {
	bin, err := pgserver.Find(cfg.bin)
	switch {
	case err != nil && cfg.bin == "":
		return nil, fmt.Errorf("%w (%w)", err, errAbsent)
	case err != nil:
		return nil, fmt.Errorf("IDEM_TEST_POSTGRES_BIN: %w", err)
	}
	own, saved := filepath.Join(dir.path, "server"), filepath.Join(dir.path, "saved")
	for _, path := range []string{own, saved} {
		if err := os.Mkdir(path, 0o700); err != nil {
			return nil, err
		}
	}
	postgres, err := pgserver.Create(ctx, pgserver.Options{Bin: bin, Dir: own, Settings: cfg.settings})
	if err != nil {
		return nil, err
	}
	if err = postgres.SaveData(ctx, saved); err == nil {
		err = postgres.Start(ctx)
	}
	if err != nil {
		postgres.Close()
		return nil, err
	}
	return &server{url: postgres.DSN(), what: "local, " + bin, saved: saved, stop: func() { postgres.Close() }}, nil
}
