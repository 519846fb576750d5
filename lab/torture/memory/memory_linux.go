// Package memory measures the peak memory of this process.
package memory

import (
	"bytes"
	"os"
	"strconv"
)

// Most returns the peak memory of this process in bytes, or 0 if it is unknown. It does not use
// getrusage: on Linux, its value includes the memory of the parent at the fork.
func Most() int64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	_, rest, _ := bytes.Cut(status, []byte("VmHWM:"))
	number, _, _ := bytes.Cut(rest, []byte(" kB"))
	kibibytes, _ := strconv.ParseInt(string(bytes.TrimSpace(number)), 10, 64)
	return kibibytes << 10
}
