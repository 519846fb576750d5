package pgserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/idem-go/idem/lab/optional"
)

// Installation is a directory with PostgreSQL's programs.
type Installation struct {
	Dir   string
	Major int // the major version of PostgreSQL
}

// oldestMajor is the oldest version that the library supports.
const oldestMajor = 14

// Find returns the usable installations. If asked is not empty, Find only looks at that directory.
// Otherwise the installation in PATH comes first, followed by the others, the newest first. If
// there is none, the error is an [optional.MissingError].
func Find(asked string) ([]Installation, error) {
	if asked != "" {
		inst, err := inspect(asked)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%w: %w", optional.Needs("postgres"), err)
		}
		if err != nil {
			return nil, err
		}
		return []Installation{inst}, nil
	}

	var found []Installation
	if path, err := exec.LookPath("postgres"); err == nil {
		if inst, err := inspect(realDir(path)); err == nil {
			found = append(found, inst)
		}
	}
	var rest []Installation
	for _, pattern := range optional.PostgresDirs {
		dirs, _ := filepath.Glob(pattern)
		for _, dir := range dirs {
			if inst, err := inspect(realDir(filepath.Join(dir, "postgres"))); err == nil {
				rest = append(rest, inst)
			}
		}
	}
	slices.SortStableFunc(rest, func(a, b Installation) int { return cmp.Compare(b.Major, a.Major) })
	for _, inst := range rest {
		if !slices.Contains(found, inst) {
			found = append(found, inst)
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%w, version %d or newer", optional.Needs("postgres"), oldestMajor)
	}
	return found, nil
}

// realDir returns the directory of a program after resolving links. PATH often contains a link to a
// single program, and the other programs are in the directory of its target.
func realDir(program string) string {
	if real, err := filepath.EvalSymlinks(program); err == nil {
		program = real
	}
	return filepath.Dir(program)
}

var versionPattern = regexp.MustCompile(`\(PostgreSQL\) (\d+)`)

// inspect runs initdb and postgres in dir with --version. It fails if one of them does not run, or
// if the version is too old.
func inspect(dir string) (Installation, error) {
	if _, err := versionOf(filepath.Join(dir, "initdb")); err != nil {
		return Installation{}, err
	}
	major, err := versionOf(filepath.Join(dir, "postgres"))
	if err == nil && major < oldestMajor {
		err = fmt.Errorf("%s has version %d, older than %d", dir, major, oldestMajor)
	}
	return Installation{Dir: dir, Major: major}, err
}

func versionOf(program string) (int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, program, "--version").Output()
	if err != nil {
		return 0, fmt.Errorf("%s --version: %w", program, err)
	}
	match := versionPattern.FindSubmatch(out)
	if match == nil {
		return 0, fmt.Errorf("%s --version printed %q", program, out)
	}
	return strconv.Atoi(string(match[1]))
}
