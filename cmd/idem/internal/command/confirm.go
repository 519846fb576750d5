package command

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/idem-go/idem"
)

// confirmFlag has the flag that answers the confirmation of a change.
type confirmFlag struct {
	Yes bool `short:"y" help:"Do not ask for confirmation."`
}

// ask says what the command will do, and waits for the answer. It returns nil if the person agrees,
// and an error otherwise. Without a terminal it returns an error unless --yes was given:
// a script must state that it wants the change.
func (c confirmFlag) ask(s *session, will string) error {
	if c.Yes {
		return nil
	}
	if !s.InIsTerminal {
		return unchanged("nothing was changed: this %s; there is no terminal to ask at, so give --yes", will)
	}
	fmt.Fprintf(s.Stderr, "This %s.\nContinue? [y/N] ", will)
	answer, err := readLine(s.ctx, s)
	if !strings.HasSuffix(answer, "\n") { // the input ended within the line
		fmt.Fprintln(s.Stderr)
	}
	if err != nil {
		return err
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return unchanged("nothing was changed")
}

// readLine returns a line of standard input, or the cause of ctx when ctx is done. A read from a
// terminal cannot be canceled, so the goroutine stays blocked until the program exits.
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

// auditFlags has the flags of a command that makes a change which idem.audit records.
type auditFlags struct {
	Reason string `placeholder:"TEXT" help:"Reason of the change, which idem audit shows."`
	Person string `placeholder:"NAME" help:"Person who makes the change, in addition to the database role. Default: the variable IDEM_PERSON, or USER."`
	confirmFlag
}

// withReason returns a context that carries the person and the reason. The library writes both to
// idem.audit in the transaction of the change. Several people often share a database role, so the
// role alone does not say who made a change.
func (a *auditFlags) withReason(s *session) context.Context {
	person := cmp.Or(a.Person, s.Getenv("IDEM_PERSON"), s.Getenv("USER"))
	return idem.WithReason(idem.WithPerson(s.ctx, person), a.Reason)
}
