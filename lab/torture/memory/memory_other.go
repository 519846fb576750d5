//go:build !linux

// Package memory measures the peak memory of this process.
package memory

// Most returns 0: the value is unknown on this system.
func Most() int64 { return 0 }
