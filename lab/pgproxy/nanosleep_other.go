//go:build !linux

package pgproxy

import "time"

func nanosleep(d time.Duration) { time.Sleep(d) }
