// Package pgbouncer finds the PgBouncer that tests and the torture run.
package pgbouncer

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
)

// Find returns the program, which Debian puts where only root looks.
func Find() (string, error) {
	if program, err := exec.LookPath("pgbouncer"); err == nil {
		return program, nil
	}
	const debian = "/usr/sbin/pgbouncer"
	if _, err := os.Stat(debian); err != nil {
		return "", errors.New("pgbouncer is not installed")
	}
	return debian, nil
}

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
