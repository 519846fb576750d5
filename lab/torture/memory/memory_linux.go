// Package memory tells how much memory this process took.
package memory

import (
	"bytes"
	"os"
	"strconv"
)

// Most is the most that this process has taken so far, in bytes, 0 if that is not known. What getrusage tells is not
// that: on Linux, it includes what the parent had when it started this process.
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
