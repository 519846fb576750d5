package main

import (
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
)

// runAll runs the command in each of the directories, so many at a time, in all of them whatever happens to any, and
// without -race in those that are unraced.
func runAll(c *count, together int, unraced, dirs, command []string) {
	plain := slices.DeleteFunc(slices.Clone(command), func(arg string) bool { return arg == "-race" })
	places := make(chan struct{}, together)
	var running sync.WaitGroup
	for _, dir := range dirs {
		places <- struct{}{}
		running.Go(func() {
			defer func() { <-places }()
			if slices.Contains(unraced, filepath.Clean(dir)) {
				run(c, dir, plain)
			} else {
				run(c, dir, command)
			}
		})
	}
	running.Wait()
}

// run runs the command in one of them. What it says on stderr is shown as it is.
func run(c *count, dir string, command []string) {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Dir, cmd.Stderr = dir, passage{c}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err == nil {
		if err = c.read(out); err != nil {
			cmd.Process.Kill() // it would wait for a reader for good
		}
		if ended := cmd.Wait(); err == nil {
			err = ended
		}
	}
	if err != nil {
		c.blame(dir + ": " + err.Error())
	}
}

// passage lets text through to where the rest is shown.
type passage struct{ *count }

func (p passage) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.Write(text)
}
