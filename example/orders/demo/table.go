package demo

import (
	"fmt"
	"io"
	"strings"
)

// table prints the results of the acts and counts the broken promises.
type table struct {
	out    io.Writer
	total  count
	broken int
}

const rowFormat = "%-39s  %8v  %6v  %7v  %7v  %7v  %s\n"

func (t *table) begin() {
	fmt.Fprint(t.out, "An attempt is a POST /orders with an Idempotency-Key, or a POST /checkouts, which calls the bank.\n"+
		"A replay is the recorded answer, sent again. A charge is an entry in the ledger of the bank.\n\n")
	fmt.Fprintf(t.out, rowFormat, "what goes wrong", "attempts", "orders", "charges", "replays", "refused", "verdict")
}

func (t *table) row(name string, c count, note string, err error) {
	verdict := "held"
	if note != "" {
		verdict += ": " + note
	}
	if err != nil {
		verdict = "BROKEN"
		t.broken++
	}
	t.total = t.total.plus(c)
	fmt.Fprintf(t.out, rowFormat, name, c.attempts, c.created, c.charges, c.replays, c.refused, verdict)
	if err != nil {
		fmt.Fprintf(t.out, "    %s\n", strings.ReplaceAll(err.Error(), "\n", "\n    "))
	}
}

// end prints the totals and the books, and reports whether every promise held.
func (t *table) end(change books, delivered deliveries) bool {
	c := t.total
	fmt.Fprintf(t.out, rowFormat, "total", c.attempts, c.created, c.charges, c.replays, c.refused, "")
	fmt.Fprintf(t.out, "\nthe books: %v\n%v\n", change, delivered)
	if err := delivered.balance(change.Orders); err != nil {
		fmt.Fprintf(t.out, "%v\n", err)
		t.broken++
	}
	if t.broken > 0 {
		fmt.Fprintf(t.out, "%d of the promises broken\n", t.broken)
		return false
	}
	fmt.Fprintln(t.out, "every promise held")
	return true
}
