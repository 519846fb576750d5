package child

import "syscall"

// dieWithUs makes the kernel send sig to the child when the thread that started it ends.
func dieWithUs(attr *syscall.SysProcAttr, sig syscall.Signal) { attr.Pdeathsig = sig }
