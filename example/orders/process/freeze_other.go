//go:build !unix

package process

import "errors"

// Freeze stops the process in the middle of what it does, where that can be done.
func (p *Process) Freeze() error {
	return errors.New("this system cannot stop a process in the middle of what it does")
}
