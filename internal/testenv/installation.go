package main

import (
	"cmp"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"time"
)

// installation is a directory with a set of PostgreSQL's programs.
type installation struct {
	dir   string
	major int
}

// oldestMajor is the oldest version that the library is tested with.
const oldestMajor = 14

// binDirs are the places where packages put the programs, out of PATH for the most part.
var binDirs = []string{
	"/usr/lib/postgresql/*/bin",                          // Debian, Ubuntu, Gentoo
	"/usr/pgsql-*/bin",                                   // PGDG's RPMs
	"/usr/libexec/postgresql*",                           // Alpine
	"/opt/homebrew/opt/postgresql*/bin",                  // Homebrew
	"/usr/local/opt/postgresql*/bin",                     // Homebrew on Intel
	"/home/linuxbrew/.linuxbrew/opt/postgresql*/bin",     // Homebrew on Linux
	"/Applications/Postgres.app/Contents/Versions/*/bin", // Postgres.app
	"/usr/local/pgsql/bin",                               // built from source
}

// installations lists what is there: only the directory that was asked for, else first the one in PATH, which is what
// "postgres" means to whoever runs this, then the others, the newest first.
func installations(asked string, patterns []string) ([]installation, error) {
	if asked != "" {
		inst, err := inspect(asked)
		if err != nil {
			return nil, fmt.Errorf("IDEM_TEST_POSTGRES_BIN: %w", err)
		}
		return []installation{inst}, nil
	}

	var found []installation
	if path, err := exec.LookPath("postgres"); err == nil {
		if inst, err := inspect(realDir(path)); err == nil {
			found = append(found, inst)
		}
	}
	var rest []installation
	for _, pattern := range patterns {
		dirs, _ := filepath.Glob(pattern)
		for _, dir := range dirs {
			if inst, err := inspect(realDir(filepath.Join(dir, "postgres"))); err == nil {
				rest = append(rest, inst)
			}
		}
	}
	slices.SortStableFunc(rest, func(a, b installation) int { return cmp.Compare(b.major, a.major) })
	for _, inst := range rest {
		if !slices.Contains(found, inst) {
			found = append(found, inst)
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("no PostgreSQL %d or newer in PATH or where packages install it (%w)", oldestMajor, errAbsent)
	}
	return found, nil
}

// realDir follows links: PATH often holds one to a single program, whose siblings are elsewhere.
func realDir(program string) string {
	if real, err := filepath.EvalSymlinks(program); err == nil {
		program = real
	}
	return filepath.Dir(program)
}

var versionPattern = regexp.MustCompile(`\(PostgreSQL\) (\d+)`)

// inspect makes sure that the programs in dir are there and run.
func inspect(dir string) (installation, error) {
	if _, err := versionOf(filepath.Join(dir, "initdb")); err != nil {
		return installation{}, err
	}
	major, err := versionOf(filepath.Join(dir, "postgres"))
	if err == nil && major < oldestMajor {
		err = fmt.Errorf("%s has version %d, older than %d", dir, major, oldestMajor)
	}
	return installation{dir: dir, major: major}, err
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
		return 0, fmt.Errorf("%s --version says %q", program, out)
	}
	return strconv.Atoi(string(match[1]))
}
