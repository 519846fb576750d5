package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/idem-go/idem/lab/optional"
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
		{name: "none", url: absent, docker: broken, local: absent, want: "needs postgres"},
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

func TestStart_SaysWhatToInstallWithoutAnyPostgres(t *testing.T) {
	t.Parallel()
	absent := func() error { return errAbsent }
	for _, test := range []struct {
		name   string
		docker func() error
		want   string
	}{
		{"nothing is installed", absent, optional.ErrNoDatabase.Error()},
		{"an engine is broken", func() error { return errors.New("the engine sleeps") }, "docker: the engine sleeps\n" + optional.ErrNoDatabase.Error()},
	} {
		all := []source{stubSource("docker", test.docker), stubSource("local", absent)}
		if _, err := start(t.Context(), all, config{}, nil); err == nil || err.Error() != test.want {
			t.Errorf("%s: got %v, want %s", test.name, err, test.want)
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
