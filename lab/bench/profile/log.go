package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/idem-go/idem/lab/bench/contestant"
	"github.com/idem-go/idem/lab/optional"
	"github.com/idem-go/idem/lab/sidebyside"
)

// logged is what a course has left in the write-ahead log, in bytes a call.
type logged struct {
	course string
	bytes  map[string]float64 // by kind
}

// kinds tells what records of the log are about, in the order of the report. The names are those of pg_waldump.
var kinds = []struct {
	name   string
	record *regexp.Regexp
}{
	{"rows inserted", regexp.MustCompile(`^Heap2?/(MULTI_)?INSERT`)},
	{"an INSERT … ON CONFLICT confirmed", regexp.MustCompile(`^Heap/HEAP_CONFIRM`)},
	{"index entries, pages of an index split", regexp.MustCompile(`^Btree/`)},
	{"a row locked before its update", regexp.MustCompile(`^Heap2?/LOCK`)},
	{"rows updated", regexp.MustCompile(`^Heap/(HOT_)?UPDATE`)},
	{"versions of rows pruned", regexp.MustCompile(`^Heap2/(PRUNE|VACUUM|VISIBLE|FREEZE)`)},
	{"the commit", regexp.MustCompile(`^Transaction/`)},
	{"sequences and the rest", regexp.MustCompile(``)},
}

// logs measures what a first run of one INSERT leaves in the log.
func logs(ctx context.Context, s *sidebyside.Server, r *results) error {
	for _, c := range named(writes, r.only) {
		if !slices.Contains([]string{contestant.NamePlain, twoWrites, contestant.NameIdem, contestant.NameTextbook}, c.name) {
			continue
		}
		l, err := logOf(ctx, s, c, r.plan)
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
			r.leftOut("what is in the log: " + optional.Needs("pg_waldump").Error())
			return nil
		}
		if err != nil {
			return err
		}
		r.logs = append(r.logs, l)
	}
	return nil
}

func logOf(ctx context.Context, s *sidebyside.Server, c course, p plan) (l logged, err error) {
	st, source, err := openWarm(ctx, s, c, p)
	if err != nil {
		return l, err
	}
	defer st.pool.Close()
	begin, err := s.Position(ctx)
	if err != nil {
		return l, err
	}
	count := 4 * p.calls
	if _, err := st.take(ctx, source.Template, source.Take(count)); err != nil {
		return l, err
	}
	end, err := s.Position(ctx)
	if err != nil {
		return l, err
	}
	if _, err := s.Admin.Exec(ctx, "insert into flushed values (1)"); err != nil { // what is dumped has to be on the disk
		return l, err
	}
	text, err := exec.CommandContext(ctx, filepath.Join(s.Bin(), "pg_waldump"),
		"--path", filepath.Join(s.Data(), "pg_wal"), "--stats=record", "--start", begin, "--end", end).Output()
	if err != nil {
		return l, fmt.Errorf("pg_waldump: %w", err)
	}
	bytes, err := summed(string(text))
	for kind := range bytes {
		bytes[kind] /= float64(count)
	}
	return logged{c.name, bytes}, err
}

// statistic is a line of pg_waldump's: a record, how many there were, and how many bytes they and their images of pages had.
var statistic = regexp.MustCompile(`(?m)^\s*(\S+/\S+)\s+\d+ \(.*?\)\s+\d+ \(.*?\)\s+\d+ \(.*?\)\s+(\d+) \(.*?\)\s*$`)

// summed adds the bytes up by kind.
func summed(text string) (map[string]float64, error) {
	bytes := map[string]float64{}
	for _, line := range statistic.FindAllStringSubmatch(text, -1) {
		size, err := strconv.ParseFloat(line[2], 64)
		if err != nil {
			return nil, err
		}
		for _, kind := range kinds {
			if kind.record.MatchString(line[1]) {
				bytes[kind.name] += size
				break
			}
		}
	}
	if len(bytes) == 0 {
		return nil, errors.New("pg_waldump has counted nothing: " + strings.TrimSpace(text))
	}
	return bytes, nil
}
