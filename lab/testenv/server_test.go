package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestStart_UsesTheFirstSourceThatWorks(t *testing.T) {
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
		{name: "first the address", url: works, docker: works, local: works, want: "url"},
		{name: "then Docker", url: absent, docker: works, local: works, want: "docker"},
		{name: "then programs", url: absent, docker: absent, local: works, want: "local"},
		{name: "past a Docker that is broken", url: absent, docker: broken, local: works, want: "local"},
		{name: "only the requested source", only: "local", url: works, docker: works, local: works, want: "local"},
		{name: "no other source instead of the requested one", only: "docker", url: works, docker: broken, local: works, want: "broken"},
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

func stubSource(name string, try func() error) source {
	return source{name, func(context.Context, config, *runDir) (*server, error) {
		if err := try(); err != nil {
			return nil, err
		}
		return &server{what: name}, nil
	}}
}
