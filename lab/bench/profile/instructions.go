package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/lab/bench/contestant"
	"github.com/idem-go/idem/lab/bench/measure"
	"github.com/idem-go/idem/lab/optional"
	"github.com/idem-go/idem/lab/pgserver"
	"github.com/idem-go/idem/lab/schema"
	"github.com/idem-go/idem/lab/sidebyside"
)

// counted is how many instructions of PostgreSQL's own, without the kernel's, a call takes.
type counted struct {
	course string
	each   float64
}

// instructions counts those of first runs of one INSERT. Nothing else that the machine does changes them.
func instructions(ctx context.Context, _ *sidebyside.Server, r *results) (err error) {
	valgrind, err := optional.Find("valgrind")
	if err != nil {
		r.leftOut("how many instructions the server executes: " + err.Error())
		return nil
	}
	s, err := startCounting(ctx, valgrind, r.options.Data)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	source := measure.NewSource(r.plan.seed, contestant.OneInsert, responseSize)
	for _, c := range named(writes, r.only) {
		each, err := s.count(ctx, c, source, r.plan.counted)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		r.instructions = append(r.instructions, counted{c.name, each})
	}
	return nil
}

// countingServer is a server each of whose processes leaves a file when it ends, which says how many instructions it has executed.
type countingServer struct {
	*pgserver.Server
	dir string
}

func startCounting(ctx context.Context, valgrind, data string) (s *countingServer, err error) {
	found, err := pgserver.Find("")
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(data, "idem-profile-")
	if err != nil {
		return nil, err
	}
	s = &countingServer{dir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if err := s.wrap(valgrind, found[0].Dir); err != nil {
		return nil, err
	}
	s.Server, err = pgserver.Start(ctx, pgserver.Options{
		Bin: s.dir, Dir: filepath.Join(s.dir, "server"), Settings: []string{"fsync=off", "autovacuum=off", "shared_buffers=128MB"},
	})
	if err != nil {
		return nil, err
	}
	if err := sidebyside.Execute(ctx, s.DSN(), contestant.Schema); err != nil {
		return nil, err
	}
	return s, schema.UpAt(ctx, s.DSN())
}

// wrap makes a folder of PostgreSQL's programs, of which the server runs under valgrind. The server may write below it.
func (s *countingServer) wrap(valgrind, bin string) error {
	counts := filepath.Join(s.dir, "server")
	script := fmt.Sprintf("#!/bin/sh\nexec %s --tool=callgrind --trace-children=yes --quiet --callgrind-out-file=%s/counted.%%p %s/postgres \"$@\"\n", valgrind, counts, bin)
	return errors.Join(
		os.Chmod(s.dir, 0o755), os.Mkdir(counts, 0o755), os.Symlink(filepath.Join(bin, "initdb"), filepath.Join(s.dir, "initdb")),
		os.WriteFile(filepath.Join(s.dir, "postgres"), []byte(script), 0o755),
	)
}

func (s *countingServer) close() (err error) {
	if s.Server != nil {
		err = s.Close()
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}

// settled is how many calls a session makes before the server has settled on its plans.
const settled = 30

// count compares a session that makes some calls more with one that does not. The first of three pays for what is there from then on.
func (s *countingServer) count(ctx context.Context, c course, source *measure.Source, calls int) (each float64, err error) {
	config, err := pgxpool.ParseConfig(s.DSN())
	if err != nil {
		return 0, err
	}
	config.MaxConns = 1
	config.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false }
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return 0, err
	}
	defer pool.Close()
	do, err := c.open(ctx, pool)
	if err != nil {
		return 0, err
	}
	var sums [3]float64
	for i, n := range []int{1, settled, settled + calls} {
		pool.Reset()
		call := source.Template
		for _, call.Key = range source.Take(n) {
			if err := do(ctx, call); err != nil {
				return 0, err
			}
		}
		if sums[i], err = s.endSession(ctx, pool); err != nil {
			return 0, err
		}
	}
	return (sums[2] - sums[1]) / float64(calls), nil
}

// executed is a line of a file of callgrind's, which stands at its end.
var executed = regexp.MustCompile(`(?m)^totals: (\d+)$`)

// endSession ends the only session of a pool, and returns how many instructions it has executed.
func (s *countingServer) endSession(ctx context.Context, pool *pgxpool.Pool) (float64, error) {
	var pid int
	if err := pool.QueryRow(ctx, "select pg_backend_pid()").Scan(&pid); err != nil {
		return 0, err
	}
	pool.Reset()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for { // the server tells nobody when a session has ended
		text, err := os.ReadFile(filepath.Join(s.dir, "server", fmt.Sprintf("counted.%d", pid)))
		if found := executed.FindSubmatch(text); found != nil {
			return strconv.ParseFloat(string(found[1]), 64)
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return 0, err
		}
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("session %d has left no count: %w", pid, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}
