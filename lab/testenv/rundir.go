package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// runDir is the directory of one run of testenv, which holds a lock on the directory. The kernel
// releases the lock when the process ends, even by SIGKILL. The next run removes every directory
// that is not locked.
type runDir struct {
	path string
	lock *os.File
}

const (
	runDirPrefix = "idem-testenv-"
	newDirPrefix = ".idem-testenv-" // the directory is not locked yet
)

// newRunDir creates the directory of this run, and removes those of killed runs. If the data need
// not be durable, the directory is in memory: on a slow disk, cloning a database takes 250 ms in
// place of 30.
func newRunDir(durable bool) (*runDir, error) {
	parent := os.TempDir()
	reapRunDirs(parent)
	reapRunDirs(memory)
	if !durable && roomFor(memory) {
		parent = memory
	}

	path, err := os.MkdirTemp(parent, newDirPrefix)
	if err != nil {
		return nil, err
	}
	dir := &runDir{path: path}
	if dir.lock, err = lockDir(path); err != nil {
		dir.remove()
		return nil, err
	}
	// The directory gets the final name only now that it is locked. Otherwise another run that
	// starts at the same time would find it unlocked and remove it.
	locked := filepath.Join(parent, runDirPrefix+strings.TrimPrefix(filepath.Base(path), newDirPrefix))
	if err := os.Rename(path, locked); err != nil {
		dir.remove()
		return nil, err
	}
	dir.path = locked
	// Postgres may run as another user, who has to reach its directories inside this one.
	if err := os.Chmod(locked, 0o711); err != nil {
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

// removeLimit is how long remove retries while another process still writes into the directory. For
// example, the children of an interrupted initdb continue for a moment.
const removeLimit = 5 * time.Second

func (d *runDir) remove() {
	err := os.RemoveAll(d.path)
	// A process of an interrupted run may still create files while RemoveAll deletes them.
	for begin := time.Now(); err != nil && time.Since(begin) < removeLimit; err = os.RemoveAll(d.path) {
		time.Sleep(10 * time.Millisecond)
	}
	if err != nil {
		say("left behind: %v", err)
	}
	if d.lock != nil {
		d.lock.Close()
	}
}

// reapRunDirs removes the directories of runs that have ended. If a server still runs in such a
// directory, Postgres notices within a minute that its directory is gone, and exits. So reapRunDirs
// need not look for the process by an id, which could belong to another process by now.
func reapRunDirs(parent string) {
	paths, _ := filepath.Glob(filepath.Join(parent, runDirPrefix+"*"))
	for _, path := range paths {
		lock, err := lockDir(path)
		if err != nil {
			continue // the run is alive, or the directory belongs to another user
		}
		if err := os.RemoveAll(path); err == nil {
			say("removed %s, left by a run that was killed", path)
		}
		lock.Close()
	}
}

// lockDir opens and locks a directory. It fails at once if the directory is locked or belongs to
// another user.
func lockDir(path string) (*os.File, error) {
	dir, err := os.OpenFile(path, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	if err := ownedByUs(dir); err != nil {
		dir.Close()
		return nil, err
	}
	if err := syscall.Flock(int(dir.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		dir.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return dir, nil
}

func ownedByUs(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && int(stat.Uid) != os.Getuid() {
		return fmt.Errorf("%s belongs to another user", f.Name())
	}
	return nil
}
