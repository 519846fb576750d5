package main

import (
	"bytes"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// module is one module argument of tally, with its go test command and the progress of this
// command.
type module struct {
	dir     string
	path    string // the module path in go.mod
	command []string

	took   time.Duration // time until the command ended
	cpu    time.Duration // processor time of the command and its descendants
	tests  int           // number of tests that have ended
	failed int
	other  bytes.Buffer // output of the command that is not an event of go test -json
}

var moduleLine = regexp.MustCompile(`(?m)^module\s+(\S+)`)

func newModule(arg string, command, unraced []string) *module {
	dir, packages, replaced := strings.Cut(arg, "=")
	m := &module{dir: filepath.Clean(dir), command: slices.Clone(command)}
	if replaced {
		m.command = replacePackages(m.command, strings.Split(packages, ","))
	}
	if slices.Contains(unraced, dir) {
		m.command = slices.DeleteFunc(m.command, func(arg string) bool { return arg == "-race" })
	}
	text, _ := os.ReadFile(filepath.Join(dir, "go.mod")) // if go.mod cannot be read, shortName returns import paths
	if line := moduleLine.FindSubmatch(text); line != nil {
		m.path = string(line[1])
	}
	return m
}

// shortName returns the directory of a package in the repository. It returns the import path if the
// directory is unknown.
func (m *module) shortName(pkg string) string {
	rest, ok := strings.CutPrefix(pkg, m.path)
	switch {
	case m.path == "" || !ok || rest != "" && rest[0] != '/':
		return pkg
	case rest == "" && m.dir == ".":
		return path.Base(pkg)
	}
	return path.Join(filepath.ToSlash(m.dir), rest)
}

// booleanFlags are the flags of go test that are not followed by a value in the next argument.
var booleanFlags = strings.Fields("-a -asan -benchmem -c -cover -failfast -fullpath -json -linkshared -modcacherw -msan -n -race " +
	"-short -trimpath -v -work -x")

// replacePackages returns a copy of command with other packages. The command has the form "go test
// [flag]... [package]... [flag]...".
func replacePackages(command, packages []string) []string {
	begin := min(2, len(command))
	for begin < len(command) && strings.HasPrefix(command[begin], "-") {
		if !strings.Contains(command[begin], "=") && !slices.Contains(booleanFlags, command[begin]) {
			begin++ // skip the next argument, which is the value of the flag
		}
		begin++
	}
	begin = min(begin, len(command))
	end := begin
	for end < len(command) && !strings.HasPrefix(command[end], "-") {
		end++
	}
	return slices.Concat(command[:begin], packages, command[end:])
}
