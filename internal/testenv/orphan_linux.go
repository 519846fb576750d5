package main

import "syscall"

// dieWithUs has the kernel send sig to a process whose testenv was killed.
func dieWithUs(attr *syscall.SysProcAttr, sig syscall.Signal) { attr.Pdeathsig = sig }
