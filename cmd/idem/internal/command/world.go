package command

import (
	"fmt"
	"io"
	"syscall"
	"time"
)

// World is all that a command touches besides the database.
type World struct {
	Args    []string // without the name of the program
	Getenv  func(string) string
	Environ []string
	Now     func() time.Time

	Stdin          io.Reader
	Stdout, Stderr io.Writer

	InIsTerminal, OutIsTerminal, ErrIsTerminal bool
}

// Interrupted is the cause with which the context of a command ends when a signal has come.
type Interrupted struct{ Signal syscall.Signal }

func (i Interrupted) Error() string {
	if i.Signal == syscall.SIGINT {
		return "interrupted"
	}
	return fmt.Sprintf("interrupted: %v", i.Signal)
}

// colours tells whether what is written for a person may be coloured.
func (w World) colours() bool {
	return w.OutIsTerminal && w.Getenv("NO_COLOR") == "" && w.Getenv("TERM") != "dumb"
}
