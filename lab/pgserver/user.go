package pgserver

import (
	"fmt"
	"os/user"
	"strconv"
	"syscall"
)

// Unprivileged returns the user that runs PostgreSQL's programs, or nil if uid is not root. The
// user is postgres or nobody. Unprivileged fails if neither exists.
func Unprivileged(uid int) (*syscall.Credential, error) {
	if uid != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		if err != nil {
			continue
		}
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		if err != nil {
			continue
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, fmt.Errorf("PostgreSQL refuses to run as root, and neither the user postgres nor nobody exists")
}
