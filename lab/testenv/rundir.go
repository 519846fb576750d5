package main

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/idem-go/idem/lab/pgserver/child"
)

// runDir is the directory of one run of testenv. A shell removes it when testenv ends, even by
// SIGKILL.
type runDir struct {
	path    string
	removal *child.Guard
}

const runDirPrefix = "idem-testrun-"

// removeScript tries several times: other processes, such as the children of an interrupted initdb,
// may still create files for a moment.
const removeScript = `for wait in 0.1 0.5 1 2 5; do rm -rf "$0" 2>/dev/null && exit; sleep $wait; done; rm -rf "$0"`

// newRunDir creates the directory of this run. If the data need not be durable, the directory is in
// memory: on a slow disk, cloning a database takes 250 ms instead of 30 ms.
func newRunDir(durable bool) (*runDir, error) {
	parent := os.TempDir()
	if !durable && roomFor(memory) {
		parent = memory
	}
	path, err := os.MkdirTemp(parent, runDirPrefix)
	if err != nil {
		return nil, err
	}
	dir := &runDir{path: path}
	if dir.removal, err = child.NewGuard(removeScript, path); err != nil {
		os.Remove(path)
		return nil, err
	}
	// Postgres may run as another user, who has to reach its directories inside this one.
	if err := os.Chmod(path, 0o711); err != nil {
		dir.remove()
		return nil, err
	}
	return dir, nil
}

// memory is the directory in which Linux keeps files in memory. Other systems do not have it.
const memory = "/dev/shm"

// roomFor reports whether dir has enough space for a test server, with a wide margin. In a
// container, /dev/shm can have as little as 64 MiB.
func roomFor(dir string) bool {
	var stat unix.Statfs_t
	if err := unix.Statfs(dir, &stat); err != nil || unix.Access(dir, unix.W_OK) != nil {
		return false
	}
	const enough = 4 << 30
	return uint64(stat.Bavail)*uint64(stat.Bsize) >= enough
}

func (d *runDir) remove() {
	if err := d.removal.Run(); err != nil {
		say("left behind: %s: %v", d.path, err)
	}
}
