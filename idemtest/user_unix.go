//go:build unix

package idemtest

import (
	"errors"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
)

func init() { unprivileged = asOtherUser }

// asOtherUser prepares cmd to start the server. PostgreSQL refuses to run as root. If this process
// runs as root, as in many containers, cmd therefore runs as the user postgres or nobody. cmd also
// gets its own process group, so that Ctrl-C in the terminal does not reach the server before the
// tests end.
func asOtherUser(cmd *exec.Cmd) error {
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if os.Getuid() != 0 {
		return nil
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
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		return nil
	}
	return errors.New("PostgreSQL refuses to run as root, and there is no user postgres or nobody to run it as")
}
