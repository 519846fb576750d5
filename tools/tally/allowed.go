package main

import (
	"fmt"
	"os"
	"strings"
)

// readAllowed reads a file that lists the tests that may be skipped, and returns the reasons by
// test. Each line has the form "package.Test: why". Lines that begin with # are comments. If path
// is empty, readAllowed returns nil.
func readAllowed(path string) (map[string]string, error) {
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	allowed := map[string]string{}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, why, ok := strings.Cut(line, ": ")
		if !ok {
			return nil, fmt.Errorf(`%s: %q: want "package.Test: why"`, path, line)
		}
		allowed[name] = why
	}
	return allowed, nil
}
