package optional

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFind_NamesEveryMissingProgramInOrder(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	const want = "needs tmux (package tmux), patroni (packages patroni python3-etcd), etcd (package etcd-server)"
	for range 20 {
		_, err := FindAll("tmux", "patroni", "etcd")
		if !errors.Is(err, Needs("tmux", "patroni", "etcd")) || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestFind_ReturnsThePathOfAProgram(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	path := filepath.Join(dir, "chromium-browser")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if got, err := Find("chromium"); err != nil || got != path {
		t.Errorf("got %q, %v, want %q", got, err, path)
	}
}

func TestRequire_SkipsOnlyForWantOfAProgram(t *testing.T) {
	for name, test := range map[string]struct {
		err      error
		required string
		want     string
	}{
		"installed":          {nil, "", ""},
		"missing":            {fmt.Errorf("start: %w", Needs("tmux")), "", "skipped: needs tmux (package tmux)"},
		"missing, forbidden": {Needs("tmux"), "1", "failed: IDEM_TEST_REQUIRE is set: needs tmux (package tmux)"},
		"another error":      {errors.New("no permission"), "", "failed: no permission"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("IDEM_TEST_REQUIRE", test.required)
			stub := &stubTB{TB: t}
			Require(stub, test.err)
			if stub.outcome != test.want {
				t.Errorf("got %q, want %q", stub.outcome, test.want)
			}
		})
	}
}

func TestDatabase_SaysWhatToInstall(t *testing.T) {
	empty := t.TempDir()
	for name, test := range map[string]struct {
		env  []string
		want string
	}{
		"an address":              {[]string{"IDEM_TEST_DATABASE_URL=postgres://127.0.0.1"}, ""},
		"an address is asked for": {[]string{"IDEM_TEST_POSTGRES=url"}, ""},
		"Docker at an address":    {[]string{"DOCKER_HOST=tcp://127.0.0.1:1"}, ""},
		"Docker is asked for":     {[]string{"IDEM_TEST_POSTGRES=docker"}, "needs docker (package docker.io)"},
		"an empty directory":      {[]string{"IDEM_TEST_POSTGRES=local", "IDEM_TEST_POSTGRES_BIN=" + empty}, "needs postgres (package postgresql"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := os.Stat("/var/run/docker.sock"); err == nil && strings.HasPrefix(test.want, "needs docker") {
				t.Skip("has a Docker engine")
			}
			t.Setenv("PATH", empty)
			for _, variable := range []string{"DOCKER_HOST", "IDEM_TEST_DATABASE_URL", "IDEM_TEST_POSTGRES", "IDEM_TEST_POSTGRES_BIN"} {
				t.Setenv(variable, "")
			}
			for _, assignment := range test.env {
				variable, value, _ := strings.Cut(assignment, "=")
				t.Setenv(variable, value)
			}
			err := Database()
			if (err == nil) != (test.want == "") || err != nil && (!strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n")) {
				t.Errorf("got %v, want one line with %q", err, test.want)
			}
		})
	}
}

// stubTB records how a test would end.
type stubTB struct {
	testing.TB
	outcome string
}

func (s *stubTB) Helper()          {}
func (s *stubTB) Skip(args ...any) { s.outcome = "skipped: " + fmt.Sprint(args...) }
func (s *stubTB) Fatal(args ...any) {
	s.outcome = "failed: " + fmt.Sprint(args...)
}
func (s *stubTB) Fatalf(format string, args ...any) {
	s.outcome = "failed: " + fmt.Sprintf(format, args...)
}

func TestFind_LooksInPathAlone(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "p"), []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	elsewhere := program{places: []string{filepath.Join(dir, "p")}}
	if path := elsewhere.find("nowhere-in-PATH"); path == "" {
		t.Error("the program was not found outside of PATH")
	}
	t.Setenv(PathOnly, "1")
	if path := elsewhere.find("nowhere-in-PATH"); path != "" {
		t.Errorf("found %s outside of PATH", path)
	}
	if path := elsewhere.find("postgres"); path == "" {
		t.Error("PostgreSQL was not found outside of PATH")
	}
}
