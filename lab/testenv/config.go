package main

import (
	"errors"
	"flag"
	"fmt"
	"slices"
)

// config is the command line and the environment of testenv.
type config struct {
	url      string   // address of an existing server
	only     string   // "url", "docker", "local", or "" for the first available one
	image    string   // image of the container
	bin      string   // directory of PostgreSQL's programs
	settings settings // settings of a server that testenv starts
	keep     bool
	command  []string
}

const (
	defaultImage = "postgres:18-alpine"
	usage        = "testenv [-c name=value]... command [argument]..."
)

func parse(args []string, getenv func(string) string) (config, error) {
	cfg := config{
		url:      getenv("IDEM_TEST_DATABASE_URL"),
		only:     getenv("IDEM_TEST_POSTGRES"),
		image:    getenv("IDEM_TEST_POSTGRES_IMAGE"),
		bin:      getenv("IDEM_TEST_POSTGRES_BIN"),
		keep:     getenv("IDEM_TEST_KEEP") != "",
		settings: testSettings(),
	}
	if cfg.image == "" {
		cfg.image = defaultImage
	}
	// A test run against another server than the requested one proves nothing. So an address in the
	// environment excludes the other sources.
	if cfg.only == "" && cfg.url != "" {
		cfg.only = "url"
	}

	flags := flag.NewFlagSet("testenv", flag.ContinueOnError)
	flags.Usage = func() {
		fmt.Fprintln(flags.Output(), "usage: "+usage)
		flags.PrintDefaults()
	}
	asked := false
	flags.Func("c", "set a `name=value` of the server that is started, as in postgres -c (repeatable)", func(s string) error {
		asked = true
		return cfg.settings.set(s)
	})
	if err := flags.Parse(args); err != nil {
		return config{}, err
	}
	cfg.command = flags.Args()

	switch {
	case len(cfg.command) == 0:
		return config{}, fmt.Errorf("no command to run (usage: %s)", usage)
	case cfg.only != "" && !slices.Contains([]string{"url", "docker", "local"}, cfg.only):
		return config{}, fmt.Errorf("IDEM_TEST_POSTGRES=%s: want url, docker or local", cfg.only)
	case cfg.only == "url" && cfg.url == "":
		return config{}, errors.New("IDEM_TEST_POSTGRES=url, but IDEM_TEST_DATABASE_URL is not set")
	case cfg.only == "url" && asked:
		return config{}, errors.New("-c needs a server of its own: unset IDEM_TEST_DATABASE_URL, or set IDEM_TEST_POSTGRES to docker or local")
	}
	return cfg, nil
}
