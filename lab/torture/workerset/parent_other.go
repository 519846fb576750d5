//go:build !linux

package workerset

import "syscall"

func endWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
