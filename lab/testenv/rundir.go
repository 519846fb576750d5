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

// runDir is the directory of one run of testenv. It is locked for as long as the run is alive: the lock goes with the
// process however that ends, and so tells the next run what to clear away.
type runDir struct {
	path string
	lock *os.File
}

const (
	runDirPrefix = "idem-testenv-"
	newDirPrefix = ".idem-testenv-" // not locked yet
)

// newRunDir makes the directory, and removes those that earlier runs had no chance to. Data that need not be durable goes
// where it is never written to a disk: on a slow one, cloning a database takes 250 ms instead of 30.
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
	// Only a locked directory gets the name that others look for, else one that starts right now would clear it away.
	locked := filepath.Join(parent, runDirPrefix+strings.TrimPrefix(filepath.Base(path), newDirPrefix))
	if err := os.Rename(path, locked); err != nil {
		dir.remove()
		return nil, err
	}
	dir.path = locked
	// Postgres may run as another user, who has to pass through.
	if err := os.Chmod(locked, 0o711); err != nil {
		dir.remove()
		return nil, err
	}
	return dir, nil
}

// memory is where Linux keeps files in memory. It does not exist elsewhere.
const memory = "/dev/shm"

// roomFor tells whether a server for tests fits, with a wide margin: in a container this may be as little as 64 MiB.
func roomFor(dir string) bool {
	var stat unix.Statfs_t
	if err := unix.Statfs(dir, &stat); err != nil || unix.Access(dir, unix.W_OK) != nil {
		return false
	}
	const enough = 4 << 30
	return uint64(stat.Bavail)*uint64(stat.Bsize) >= enough
}

// removeLimit is how long somebody may still write into a directory that is to be removed: what initdb has begun goes on for a
// moment after initdb was interrupted.
const removeLimit = 5 * time.Second

func (d *runDir) remove() {
	err := os.RemoveAll(d.path)
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

// reapRunDirs removes the directories of runs that are over. A server that still runs in one of them notices within a
// minute that its directory is gone, and ends: no process has to be found by an id that may be another's by then.
func reapRunDirs(parent string) {
	paths, _ := filepath.Glob(filepath.Join(parent, runDirPrefix+"*"))
	for _, path := range paths {
		lock, err := lockDir(path)
		if err != nil {
			continue // alive, or not ours
		}
		if err := os.RemoveAll(path); err == nil {
			say("removed %s, left by a run that was killed", path)
		}
		lock.Close()
	}
}

// lockDir locks a directory of our own, or fails at once.
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
