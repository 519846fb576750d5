package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		args []string
		env  map[string]string
		want func(*config) // what differs from the defaults
	}{
		{name: "defaults", want: func(*config) {}},
		{
			name: "an address is insisted on",
			env:  map[string]string{"IDEM_TEST_DATABASE_URL": "postgres://h/d"},
			want: func(c *config) { c.url, c.only = "postgres://h/d", "url" },
		},
		{
			name: "unless another source is",
			env:  map[string]string{"IDEM_TEST_DATABASE_URL": "postgres://h/d", "IDEM_TEST_POSTGRES": "local"},
			want: func(c *config) { c.url, c.only = "postgres://h/d", "local" },
		},
		{
			name: "image and programs",
			env:  map[string]string{"IDEM_TEST_POSTGRES_IMAGE": "postgres:14", "IDEM_TEST_POSTGRES_BIN": "/opt/pg/bin"},
			want: func(c *config) { c.image, c.bin = "postgres:14", "/opt/pg/bin" },
		},
		{
			name: "keep",
			env:  map[string]string{"IDEM_TEST_KEEP": "1"},
			want: func(c *config) { c.keep = true },
		},
		{
			name: "settings follow the defaults, so that they win",
			args: []string{"-c", "fsync=on", "-c", "search_path=a, b"},
			want: func(c *config) { c.settings = append(c.settings, "fsync=on", "search_path=a, b") },
		},
		{
			name: "name of the database",
			args: []string{"-database", "orders"},
			want: func(c *config) { c.database = "orders" },
		},
		{
			name: "flags of the command are its own",
			args: []string{"go", "test", "-c", "-database"},
			want: func(c *config) { c.command = []string{"go", "test", "-c", "-database"} },
		},
		{
			name: "also after two dashes",
			args: []string{"--", "-c"},
			want: func(c *config) { c.command = []string{"-c"} },
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			want := config{image: defaultImage, settings: testSettings(), command: []string{"cmd"}}
			test.want(&want)
			args := test.args
			if want.command[0] == "cmd" {
				args = append(args, "cmd")
			}
			got, err := parse(args, func(name string) string { return test.env[name] })
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(config{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseRefusesContradictions(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		args []string
		env  map[string]string
		want string
	}{
		{name: "nothing to run", want: "no command"},
		{name: "a source that does not exist", args: []string{"cmd"}, env: map[string]string{"IDEM_TEST_POSTGRES": "podman"}, want: "want url, docker or local"},
		{name: "an address that is not there", args: []string{"cmd"}, env: map[string]string{"IDEM_TEST_POSTGRES": "url"}, want: "IDEM_TEST_DATABASE_URL is not set"},
		{name: "settings of a server that runs already", args: []string{"-c", "fsync=on", "cmd"}, env: map[string]string{"IDEM_TEST_DATABASE_URL": "postgres://h/d"}, want: "-c needs a server of its own"},
		{name: "a setting without a value", args: []string{"-c", "fsync", "cmd"}, want: "want name=value"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			_, err := parse(test.args, func(name string) string { return test.env[name] })
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want an error that says %q", err, test.want)
			}
		})
	}
}
