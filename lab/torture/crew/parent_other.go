//go:build !linux

package crew

import "syscall"

func endWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
