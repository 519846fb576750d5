//go:build !linux

package main

import "syscall"

// dieWithUs can do nothing here: after a kill -9 of testenv, its server stays until the next run removes its directory.
func dieWithUs(*syscall.SysProcAttr, syscall.Signal) {}
