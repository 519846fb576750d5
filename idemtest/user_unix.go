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

func init() { unprivileged = asAnother }

// asAnother has a program run as another user where this one is root, as whom PostgreSQL refuses to run, and out of reach of the
// signals of the terminal.
func asAnother(cmd *exec.Cmd) error {
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
