//go:build !unix

package demo

import "errors"

func (i *instance) freeze() error {
	return errors.New("this system cannot stop a process in the middle of what it does")
}
