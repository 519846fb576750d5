// Package pgbouncer reports what the installed PgBouncer can do.
package pgbouncer

import (
	"fmt"
	"os/exec"
)

// Prepares tells whether prepared statements outlive a transaction behind a program, as they do from version 1.21 on. Then it has
// to be told how many: max_prepared_statements.
func Prepares(program string) (bool, error) {
	out, err := exec.Command(program, "--version").Output()
	if err != nil {
		return false, err
	}
	var major, minor int
	if _, err := fmt.Sscanf(string(out), "PgBouncer %d.%d", &major, &minor); err != nil {
		return false, fmt.Errorf("the version of PgBouncer, %q: %w", out, err)
	}
	return major > 1 || minor >= 21, nil
}
