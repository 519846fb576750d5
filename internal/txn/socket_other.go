//go:build !unix

package txn

import "net"

// socket is not used on this platform: see socketOf.
type socket struct{ readsAhead bool }

// socketOf returns nil, so that a COMMIT waits on another goroutine.
func socketOf(net.Conn) *socket { return nil }

func (*socket) waitReadable() bool { return true }
