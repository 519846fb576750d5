package pgserver

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFindListsWhatWorksInOrderOfPreference(t *testing.T) {
	root := t.TempDir()
	for dir, version := range map[string]string{
		"lib/14": "14.9", "lib/18": "18.1 (Debian 18.1-1)", "lib/9": "9.6.24", "lib/17": "17beta1", "opt/16": "16.0",
	} {
		fakePrograms(t, filepath.Join(root, dir), "echo 'postgres (PostgreSQL) "+version+"'")
	}
	fakePrograms(t, filepath.Join(root, "lib/19"), "exit 1") // a wrapper without a program

	// PATH has a link to one program. The other programs are in the directory of its target.
	bin := filepath.Join(root, "bin")
	link(t, filepath.Join(root, "opt/16/postgres"), filepath.Join(bin, "postgres"))

	for _, test := range []struct {
		name, asked, path string
		patterns          []string
		want              []string
		err               string
	}{
		{name: "the one in PATH, then the newest", path: bin, patterns: []string{"lib/*", "opt/*"}, want: []string{"opt/16", "lib/18", "lib/17", "lib/14"}},
		{name: "nothing in PATH", patterns: []string{"opt/*", "lib/*"}, want: []string{"lib/18", "lib/17", "opt/16", "lib/14"}},
		{name: "the one that was asked for", asked: "lib/14", path: bin, patterns: []string{"lib/*"}, want: []string{"lib/14"}},
		{name: "asked for, but broken", asked: "lib/19", path: bin, err: "exit status 1"},
		{name: "asked for, but too old", asked: "lib/9", path: bin, err: "older than 14"},
		{name: "asked for, but not there", asked: "lib/0", path: bin, err: "no such file"},
		{name: "none", patterns: []string{"none/*"}, err: "needs postgres (package postgresql), version 14 or newer"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Setenv("PATH", test.path)
			if test.asked != "" {
				test.asked = filepath.Join(root, test.asked)
			}
			var patterns []string
			for _, pattern := range test.patterns {
				patterns = append(patterns, filepath.Join(root, pattern))
			}

			found, err := find(test.asked, patterns)
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("got %v, want an error that says %q", err, test.err)
				}
				return
			}
			var got []string
			for _, inst := range found {
				rel, _ := filepath.Rel(root, inst.Dir)
				got = append(got, rel)
			}
			if diff := cmp.Diff(test.want, got); err != nil || diff != "" {
				t.Errorf("%v, (-want +got):\n%s", err, diff)
			}
		})
	}
}

func fakePrograms(t *testing.T, dir, script string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"postgres", "initdb"} {
		if err := os.WriteFile(filepath.Join(dir, name), fmt.Appendf(nil, "#!/bin/sh\n%s\n", script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

func link(t *testing.T, target, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
}
