// Package patroni runs Postgres clusters under Patroni and a three-node etcd on the loopback
// interface.
package patroni

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/idem-go/idem/lab/optional"
	"github.com/idem-go/idem/lab/pgserver"
	"github.com/idem-go/idem/lab/pgserver/child"
)

// programs holds the paths of the installed programs, and the user, directory and password for
// running them.
type programs struct {
	patroni, etcd string
	postgres      string // directory of PostgreSQL's programs
	user          *syscall.Credential
	dir           string
	password      string
}

// Possible returns nil if all programs are installed, and otherwise an [optional.MissingError] that
// names the missing ones.
func Possible() error {
	_, err := find()
	return err
}

func find() (programs, error) {
	var p programs
	paths, err := optional.FindAll("patroni", "etcd", "postgres")
	if err != nil {
		return p, err
	}
	p.patroni, p.etcd = paths[0], paths[1]
	if p.postgres, err = pgserver.Find(""); err != nil {
		return p, err
	}
	p.user, err = pgserver.Unprivileged(os.Getuid())
	return p, err
}

// own gives a file or directory to the user who runs the programs.
func (p programs) own(path string) error {
	if p.user == nil {
		return nil
	}
	return os.Chown(path, int(p.user.Uid), int(p.user.Gid))
}

// start starts a program that ends with this process. The output goes to the file name.log.
func (p programs) start(name, program string, args ...string) (*child.Process, error) {
	log, err := os.OpenFile(filepath.Join(p.dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = p.dir, log, log
	cmd.Env = []string{"HOME=" + p.dir, "PATH=" + p.postgres + ":/usr/bin:/bin", "LC_ALL=C.UTF-8"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: p.user, Setsid: true}
	return child.Start(cmd, syscall.SIGTERM)
}

// ports returns n free TCP ports.
func ports(n int) ([]int, error) {
	found := make([]int, n)
	for i := range found {
		var err error
		if found[i], err = pgserver.FreePort(); err != nil {
			return nil, err
		}
	}
	return found, nil
}
