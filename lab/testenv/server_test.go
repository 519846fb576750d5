package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestStartTakesTheFirstThatWorks(t *testing.T) {
	t.Parallel()
	var (
		works  = func() error { return nil }
		absent = func() error { return errAbsent }
		broken = func() error { return errors.New("broken") }
	)
	for _, test := range []struct {
		name               string
		only               string
		url, docker, local func() error
		want               string // the source, or part of the error
	}{
		{name: "the address first", url: works, docker: works, local: works, want: "url"},
		{name: "then Docker", url: absent, docker: works, local: works, want: "docker"},
		{name: "then programs", url: absent, docker: absent, local: works, want: "local"},
		{name: "past a Docker that is broken", url: absent, docker: broken, local: works, want: "local"},
		{name: "only what is insisted on", only: "local", url: works, docker: works, local: works, want: "local"},
		{name: "nothing else instead of it", only: "docker", url: works, docker: broken, local: works, want: "broken"},
		{name: "none", url: absent, docker: broken, local: absent, want: "no Postgres to test against"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			all := []source{stubSource("url", test.url), stubSource("docker", test.docker), stubSource("local", test.local)}
			srv, err := start(t.Context(), all, config{only: test.only}, nil)
			got := fmt.Sprint(err)
			if err == nil {
				got = srv.what
			}
			if !strings.Contains(got, test.want) {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

func TestWithoutAnyPostgresTheErrorSaysWhatToDo(t *testing.T) {
	t.Parallel()
	all := []source{
		stubSource("docker", func() error { return errors.New("the engine sleeps") }),
		stubSource("local", func() error { return fmt.Errorf("no programs (%w)", errAbsent) }),
	}
	_, err := start(t.Context(), all, config{}, nil)
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"docker: the engine sleeps", "local:  no programs", "install", "IDEM_TEST_DATABASE_URL"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("does not say %q:\n%v", want, err)
		}
	}
}

func TestInstallHintFitsTheSystem(t *testing.T) {
	t.Parallel()
	for goos, want := range map[string]string{"darwin": "brew install", "linux": "apt-get install", "freebsd": "Docker engine"} {
		if got := installHint(goos); !strings.Contains(got, want) {
			t.Errorf("%s: does not say %q:\n%s", goos, want, got)
		}
	}
}

func TestInterruptedStartTriesNothingElse(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	all := []source{
		stubSource("docker", func() error { cancel(); return ctx.Err() }),
		stubSource("local", func() error { t.Error("local was tried"); return nil }),
	}
	if _, err := start(ctx, all, config{}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
}

func TestWaitReadyNoticesThatTheServerIsGone(t *testing.T) {
	t.Parallel()
	gone := make(chan struct{})
	close(gone)
	err := waitReady(t.Context(), "postgres://127.0.0.1:1/none?sslmode=disable", time.Hour, gone)
	if err == nil || !strings.Contains(err.Error(), "ended while starting") {
		t.Errorf("got %v", err)
	}
}

func stubSource(name string, try func() error) source {
	return source{name, func(context.Context, config, *runDir) (*server, error) {
		if err := try(); err != nil {
			return nil, err
		}
		return &server{what: name}, nil
	}}
}
