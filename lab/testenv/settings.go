package main

import (
	"errors"
	"strings"
)

// settings are the server's, in the order in which they are given to it: the last of a name counts.
type settings []string

// testSettings suit a server whose data nobody will miss and that many tests share.
func testSettings() settings {
	return settings{
		"max_connections=600", // of all the tests that run at a time, in several modules
		"fsync=off",
		"max_wal_size=512MB", // the data may be in memory
		// A transaction that sets synchronous_commit = on waits in its COMMIT, durable and unacknowledged, for a standby
		// that does not exist: for tests of what happens to a client meanwhile.
		"synchronous_standby_names=ghost",
		"synchronous_commit=local",
	}
}

func (s *settings) set(assignment string) error {
	name, _, ok := strings.Cut(assignment, "=")
	if !ok || name == "" {
		return errors.New("want name=value")
	}
	*s = append(*s, assignment)
	return nil
}

// durable tells whether the data is meant to survive a crash of the machine, so that it has to be on a disk.
func (s settings) durable() bool {
	durable := true
	for _, assignment := range s {
		if name, value, _ := strings.Cut(assignment, "="); strings.EqualFold(strings.TrimSpace(name), "fsync") {
			durable = !off(value)
		}
	}
	return durable
}

// off reads a boolean setting as Postgres does: any unambiguous prefix of these words.
func off(value string) bool {
	switch strings.ToLower(strings.Trim(strings.TrimSpace(value), "'")) {
	case "off", "of", "0", "n", "no", "f", "fa", "fal", "fals", "false":
		return true
	}
	return false
}
