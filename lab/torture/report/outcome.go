package report

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"

	"github.com/idem-go/idem/lab/torture/check"
	"github.com/idem-go/idem/lab/torture/history"
)

// outcomes are the columns of the table, in order.
var outcomes = []history.Outcome{
	history.Executed, history.Replayed, history.Mismatch, history.InProgress, history.FnFailed, history.Panicked, history.Aborted,
	history.TooLarge, history.Ended, history.Unreadable, history.Undone, history.Cancelled, history.Conflict, history.Failed, history.Died, history.Unknown, history.Open,
}

// printOutcomes prints a table of outcomes by the called function and by the kind of fn.
func printOutcomes(w io.Writer, t *check.Tally) {
	verbs, fns := slices.Sorted(maps.Keys(t.ByVerb)), slices.Sorted(maps.Keys(t.ByFn))
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	for i := range 1 + len(verbs) + len(fns) {
		switch {
		case i == 0:
			fmt.Fprint(table, "\t")
			for _, o := range outcomes {
				fmt.Fprintf(table, "%s\t", o)
			}
		case i <= len(verbs):
			printRow(table, verbs[i-1], t.ByVerb[verbs[i-1]])
		default:
			name := fns[i-1-len(verbs)]
			printRow(table, "fn: "+name, t.ByFn[name])
		}
		fmt.Fprintln(table)
	}
	table.Flush()
}

func printRow(table io.Writer, name string, counts map[history.Outcome]int) {
	fmt.Fprintf(table, "%s\t", name)
	for _, o := range outcomes {
		if counts[o] == 0 {
			fmt.Fprint(table, "\t")
			continue
		}
		fmt.Fprintf(table, "%d\t", counts[o])
	}
}
