package main

import (
	"os"
	"path/filepath"
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
	// What a link points to is not ours to remove.
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
