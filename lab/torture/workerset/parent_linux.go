package workerset

import "syscall"

// endWithParent keeps a worker that is stopped from outliving a supervisor that is killed.
func endWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
