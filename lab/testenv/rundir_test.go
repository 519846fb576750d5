package main

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

func TestReapRemovesOnlyWhatNobodyHolds(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	dead, alive, other := filepath.Join(parent, runDirPrefix+"dead"), filepath.Join(parent, runDirPrefix+"alive"), filepath.Join(parent, "other")
	for _, dir := range []string{dead, alive, other} {
		if err := os.MkdirAll(filepath.Join(dir, "data"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	// The target of a link must not be removed.
	outside := t.TempDir()
	if err := os.Symlink(outside, filepath.Join(parent, runDirPrefix+"link")); err != nil {
		t.Fatal(err)
	}
	lock, err := lockDir(alive)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()

	reapRunDirs(parent)
	for dir, want := range map[string]bool{dead: false, alive: true, other: true, outside: true} {
		if _, err := os.Stat(dir); (err == nil) != want {
			t.Errorf("%s: exists %v, want %v", dir, err == nil, want)
		}
	}

	lock.Close()
	// A process that another test is just forking holds the lock until its exec.
	eventually(t, "the directory is removed after its run has ended", func() bool {
		reapRunDirs(parent)
		_, err := os.Stat(alive)
		return err != nil
	})
}

// The other tests find the directory of a testenv by this function.
func TestDirectoryIsHeldByWhoHasLockedItAlone(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("it is read from /proc")
	}
	dir := t.TempDir()
	looking, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer looking.Close()
	if holds(os.Getpid(), dir) {
		t.Error("held by a process that has only opened it")
	}
	lock, err := lockDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if !holds(os.Getpid(), dir) {
		t.Error("not held by the process that has locked it")
	}
}

func TestRunDirIsHeldUntilItIsRemoved(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	dir, err := newRunDir(true)
	if err != nil {
		t.Fatal(err)
	}
	reapRunDirs(os.TempDir())
	if _, err := os.Stat(dir.path); err != nil {
		t.Fatalf("another run took it away: %v", err)
	}
	dir.remove()
	left, err := os.ReadDir(os.TempDir())
	if err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
