package command

import (
	"bufio"
	"context"
	"fmt"
	"strings"
)

// consent holds the flag by which a user agrees to a change in advance.
type consent struct {
	Yes bool `short:"y" help:"Do it without asking."`
}

// ask announces the change and returns nil if the user agrees. It returns a refusedError if the
// user does not, or if there is no terminal to ask at.
func (c consent) ask(s *session, will string) error {
	if c.Yes {
		return nil
	}
	if !s.InIsTerminal {
		return refusedError{"nothing was changed: this " + will + "; there is no terminal to ask at, so say --yes"}
	}
	fmt.Fprintf(s.Stderr, "This %s.\nGo on? [y/N] ", will)
	answer, err := readLine(s.ctx, s)
	if !strings.HasSuffix(answer, "\n") { // the user has not typed Enter
		fmt.Fprintln(s.Stderr)
	}
	if err != nil {
		return err
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return refusedError{"nothing was changed"}
}

// readLine reads a line from standard input. If ctx ends first, it returns the cause. The goroutine
// that reads the terminal cannot be stopped and stays behind.
func readLine(ctx context.Context, s *session) (string, error) {
	line := make(chan string, 1)
	go func() {
		text, _ := bufio.NewReader(s.Stdin).ReadString('\n')
		line <- text
	}()
	select {
	case text := <-line:
		return text, nil
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}
