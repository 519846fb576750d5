package command

import (
	"bufio"
	"context"
	"fmt"
	"strings"
)

// Consent is how a person agrees to a change.
type consent struct {
	Yes bool `short:"y" help:"Do it without asking."`
}

// ask says what will be done and returns nil if the person agrees to it.
func (c consent) ask(s *session, will string) error {
	if c.Yes {
		return nil
	}
	if !s.InIsTerminal {
		return refusedError{"nothing was changed: this " + will + "; there is no terminal to ask at, so say --yes"}
	}
	fmt.Fprintf(s.Stderr, "This %s.\nGo on? [y/N] ", will)
	answer, err := readLine(s.ctx, s)
	if !strings.HasSuffix(answer, "\n") { // the line was not ended
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

// readLine waits for a line as long as the context goes on. The reader of a terminal cannot be stopped: it is left.
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
