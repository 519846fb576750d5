//go:build !linux

package child

import "syscall"

// dieWithUs does nothing: this system cannot signal a child when its parent ends.
func dieWithUs(*syscall.SysProcAttr, syscall.Signal) {}
