//go:build !unix

package process

import "errors"

// Freeze is not supported on this system and returns an error.
func (p *Process) Freeze() error {
	return errors.New("this system cannot stop a process in the middle of what it does")
}
