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

// asAnother prepares cmd for a start of the server. PostgreSQL refuses to run as root: if this
// process is root, cmd runs as the user postgres or nobody. asAnother also gives cmd a process
// group of its own, so that the signals of the terminal (Ctrl-C) do not reach it.
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
