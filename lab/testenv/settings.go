package main

import (
	"errors"
	"strings"
)

// settings are server settings in the order of the command line. The last value of a name wins.
type settings []string

// testSettings returns the settings for a server that many tests share and whose data is not
// valuable.
func testSettings() settings {
	return settings{
		"max_connections=600", // enough for all tests that run at the same time in several modules
		"fsync=off",
		"max_wal_size=512MB", // the data may be in memory
		// A transaction that sets synchronous_commit = on waits in its COMMIT for a standby that
		// does not exist. The transaction is durable, and its client gets no answer. Tests use that
		// to examine a client in this state.
		"synchronous_standby_names=ghost",
		"synchronous_commit=local",
	}
}

// set adds a setting of the form name=value.
func (s *settings) set(assignment string) error {
	name, _, ok := strings.Cut(assignment, "=")
	if !ok || name == "" {
		return errors.New("want name=value")
	}
	*s = append(*s, assignment)
	return nil
}

// durable reports whether fsync is on: the data then has to be on a disk.
func (s settings) durable() bool {
	durable := true
	for _, assignment := range s {
		if name, value, _ := strings.Cut(assignment, "="); strings.EqualFold(strings.TrimSpace(name), "fsync") {
			durable = !off(value)
		}
	}
	return durable
}

// off reports whether a boolean setting is off. Postgres accepts the words off, no and false, and
// every prefix of them that is not ambiguous.
func off(value string) bool {
	switch strings.ToLower(strings.Trim(strings.TrimSpace(value), "'")) {
	case "off", "of", "0", "n", "no", "f", "fa", "fal", "fals", "false":
		return true
	}
	return false
}
