package command

import (
	"fmt"
	"io"
	"syscall"
	"time"
)

// World has everything outside the program that a command uses, apart from the database.
type World struct {
	Args   []string // without the name of the program
	Getenv func(string) string
	Now    func() time.Time

	Stdin          io.Reader
	Stdout, Stderr io.Writer

	InIsTerminal, OutIsTerminal, ErrIsTerminal bool
}

// Interrupted is the cause of the context of a command after a signal.
type Interrupted struct{ Signal syscall.Signal }

func (i Interrupted) Error() string {
	if i.Signal == syscall.SIGINT {
		return "interrupted"
	}
	return fmt.Sprintf("interrupted: %v", i.Signal)
}

// colours reports whether output for a person may contain colors.
func (w World) colours() bool {
	return w.OutIsTerminal && w.Getenv("NO_COLOR") == "" && w.Getenv("TERM") != "dumb"
}
