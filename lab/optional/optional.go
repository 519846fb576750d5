// Package optional finds programs that some tests and tools need and that a machine may lack.
package optional

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// MissingError lists programs that are not installed, each with its Debian packages.
type MissingError struct{ programs string }

func (e MissingError) Error() string { return "needs " + e.programs }

// Needs returns a MissingError for these programs. It does not look them up.
func Needs(names ...string) MissingError {
	var texts []string
	for _, name := range names {
		word := "package"
		if strings.Contains(entry(name).packages, " ") {
			word = "packages"
		}
		texts = append(texts, fmt.Sprintf("%s (%s %s)", name, word, entry(name).packages))
	}
	return MissingError{strings.Join(texts, ", ")}
}

// Find returns the path of a program, or a [MissingError].
func Find(name string) (path string, err error) {
	paths, err := FindAll(name)
	if err != nil {
		return "", err
	}
	return paths[0], nil
}

// FindAll returns the paths of programs in the order of names, or a [MissingError] that lists every
// missing program.
func FindAll(names ...string) (paths []string, err error) {
	var missing []string
	for _, name := range names {
		path := entry(name).find(name)
		if path == "" {
			missing = append(missing, name)
		}
		paths = append(paths, path)
	}
	if len(missing) > 0 {
		return nil, Needs(missing...)
	}
	return paths, nil
}

// Program returns the path of a program. If it is missing, the test is skipped, or fails if
// IDEM_TEST_REQUIRE is set.
func Program(t testing.TB, name string) (path string) {
	t.Helper()
	path, err := Find(name)
	Require(t, err)
	return path
}

// Require skips the test if err contains a [MissingError]. If IDEM_TEST_REQUIRE is set, the test
// fails instead. The test also fails with any other error.
func Require(t testing.TB, err error) {
	t.Helper()
	missing, ok := errors.AsType[MissingError](err)
	switch {
	case err == nil:
	case !ok:
		t.Fatal(err)
	case os.Getenv("IDEM_TEST_REQUIRE") != "":
		t.Fatalf("IDEM_TEST_REQUIRE is set: %v", err)
	default:
		t.Skip(missing)
	}
}

// Database returns nil if the environment or the machine has a Postgres for lab/testenv. Otherwise
// the error says what to install. Database starts nothing, so a Docker engine may later turn out
// not to answer.
func Database() error {
	bin := os.Getenv("IDEM_TEST_POSTGRES_BIN")
	_, noPostgres := Find("postgres")
	if bin != "" {
		_, noPostgres = os.Stat(filepath.Join(bin, "postgres"))
	}
	_, noDocker := Find("docker")
	switch choice := os.Getenv("IDEM_TEST_POSTGRES"); {
	case choice == "docker":
		return noDocker
	case choice != "local" && (choice != "" || os.Getenv("IDEM_TEST_DATABASE_URL") != "" || noDocker == nil), noPostgres == nil:
		return nil
	case bin != "":
		return fmt.Errorf("IDEM_TEST_POSTGRES_BIN=%s: %w, or unset it", bin, ErrNoDatabase)
	}
	return ErrNoDatabase
}

// ErrNoDatabase says what to install on a machine without Postgres.
var ErrNoDatabase = errors.New("needs postgres (package postgresql; macOS: brew install postgresql@18), " +
	"or docker (package docker.io) with a running engine, or the address of a server in IDEM_TEST_DATABASE_URL")

func entry(name string) program {
	p, ok := programs[name]
	if !ok {
		panic("optional: no entry for program " + name)
	}
	return p
}

// PathOnly is the environment variable that restricts the search to PATH, except for PostgreSQL's
// programs. Tests use it to imitate a machine on which the other programs are not installed.
const PathOnly = "IDEM_TEST_PATH_ONLY"

// find returns the path of the program, or "".
func (p program) find(name string) string {
	for _, place := range slices.Concat(p.places, []string{name}) {
		if strings.Contains(place, "/") {
			if os.Getenv(PathOnly) != "" && name != "postgres" {
				continue
			}
			if found, _ := filepath.Glob(place); len(found) > 0 {
				return found[len(found)-1] // usually the newest version
			}
		} else if path, err := exec.LookPath(place); err == nil && !p.notInPath {
			return path
		}
	}
	return ""
}
