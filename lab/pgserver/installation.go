package pgserver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	"github.com/idem-go/idem/lab/optional"
)

// oldestMajor is the oldest version that the library supports.
const oldestMajor = 14

// Find returns a directory with PostgreSQL's programs. If asked is not empty, it is that directory.
// Otherwise it is the installation in PATH, or else the newest installation. If there is none, the
// error is an [optional.MissingError].
func Find(asked string) (dir string, err error) {
	if asked != "" {
		_, err := majorOf(asked)
		if errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("%w: %w", optional.Needs("postgres"), err)
		}
		return asked, err
	}
	if path, err := exec.LookPath("postgres"); err == nil {
		if _, err := majorOf(realDir(path)); err == nil {
			return realDir(path), nil
		}
	}
	newest := 0
	for _, pattern := range optional.PostgresDirs {
		candidates, _ := filepath.Glob(pattern)
		for _, candidate := range candidates {
			candidate = realDir(filepath.Join(candidate, "postgres"))
			if major, err := majorOf(candidate); err == nil && major > newest {
				dir, newest = candidate, major
			}
		}
	}
	if dir == "" {
		return "", fmt.Errorf("%w, version %d or newer", optional.Needs("postgres"), oldestMajor)
	}
	return dir, nil
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

// majorOf returns the major version of the programs in dir. It runs initdb and postgres, and fails
// if one of them does not run, or if the version is too old.
func majorOf(dir string) (major int, err error) {
	for _, program := range []string{"initdb", "postgres"} {
		if major, err = versionOf(filepath.Join(dir, program)); err != nil {
			return 0, err
		}
	}
	if major < oldestMajor {
		return 0, fmt.Errorf("%s has version %d, older than %d", dir, major, oldestMajor)
	}
	return major, nil
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
