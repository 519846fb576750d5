package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/idem-go/idem/lab/pgserver"
)

// startLocal starts a server from the first installation on this machine that works. If none works,
// its error contains the failure of each.
func startLocal(ctx context.Context, cfg config, dir *runDir) (*server, error) {
	found, err := pgserver.Find(cfg.bin)
	switch {
	case err != nil && cfg.bin == "":
		return nil, fmt.Errorf("%w (%w)", err, errAbsent)
	case err != nil:
		return nil, fmt.Errorf("IDEM_TEST_POSTGRES_BIN: %w", err)
	}
	var failures []error
	// Each attempt has a directory of its own, because a failed one may leave files behind.
	for i, inst := range found {
		srv, err := startInstallation(ctx, cfg, inst, filepath.Join(dir.path, strconv.Itoa(i)))
		if err == nil || ctx.Err() != nil {
			return srv, err
		}
		failures = append(failures, fmt.Errorf("%s: %w", inst.Dir, err))
	}
	return nil, errors.Join(failures...)
}

// startInstallation starts a server in dir. Before the first start it saves a copy of the new data
// directory, from which pgserver can create further servers without initdb.
func startInstallation(ctx context.Context, cfg config, inst pgserver.Installation, dir string) (*server, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	postgres, err := pgserver.Create(ctx, pgserver.Options{Bin: inst.Dir, Dir: dir, Settings: cfg.settings})
	if err != nil {
		return nil, err
	}
	saved := filepath.Join(dir, "saved")
	if err = os.Mkdir(saved, 0o700); err == nil {
		err = postgres.SaveData(ctx, saved)
	}
	if err == nil {
		err = postgres.Start(ctx)
	}
	if err != nil {
		postgres.Close()
		return nil, err
	}
	return &server{url: postgres.DSN(), what: "local, " + inst.Dir, saved: saved, stop: func() { postgres.Close() }}, nil
}
