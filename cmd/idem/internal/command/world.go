package command

import (
	"fmt"
	"io"
	"syscall"
	"time"
)

// World is everything outside of the process that a command uses, apart from the database and
// files.
type World struct {
	Args    []string // without the program name
	Getenv  func(string) string
	Environ []string
	Now     func() time.Time

	Stdin          io.Reader
	Stdout, Stderr io.Writer

	InIsTerminal, OutIsTerminal, ErrIsTerminal bool
}

// Interrupted is the cause of the end of the command's context after a signal.
type Interrupted struct{ Signal syscall.Signal }

func (i Interrupted) Error() string {
	if i.Signal == syscall.SIGINT {
		return "interrupted"
	}
	return fmt.Sprintf("interrupted: %v", i.Signal)
}

// colours reports whether output may have colors: it goes to a terminal that supports them, and
// NO_COLOR is not set.
func (w World) colours() bool {
	return w.OutIsTerminal && w.Getenv("NO_COLOR") == "" && w.Getenv("TERM") != "dumb"
}
