// Package pgbouncer reports what the installed PgBouncer can do.
package pgbouncer

import (
	"fmt"
	"os/exec"
)

// Prepares reports whether the PgBouncer program supports prepared statements in transaction mode,
// as versions from 1.21 on do. The setting max_prepared_statements enables them.
func Prepares(program string) (bool, error) {
	out, err := exec.Command(program, "--version").Output()
	if err != nil {
		return false, err
	}
	var major, minor int
	if _, err := fmt.Sscanf(string(out), "PgBouncer %d.%d", &major, &minor); err != nil {
		return false, fmt.Errorf("parse the version of PgBouncer, %q: %w", out, err)
	}
	return major > 1 || minor >= 21, nil
}
