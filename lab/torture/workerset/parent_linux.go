package workerset

import "syscall"

// endWithParent returns attributes that make the kernel kill the worker when the supervisor dies,
// even if the worker is stopped at that moment.
func endWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
