package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/idem-go/idem/bench/operations/contestant"
)

// String is the section of the report.
func (r *results) String() string {
	var text strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&text, format+"\n", args...) }
	if r.options.quick {
		say("**A quick run: it shows that everything runs, and its figures say nothing.**\n")
	}
	say("Taken on %s, in %v, by `%s` in `bench/operations/`, on %s. The load average just before was %s.", r.Taken.Format("2 January 2006, 15:04 UTC"), r.Took, command(), r.Machine, r.Load)
	say("%s; a COMMIT waits %v for the disk.\nVersions: %s.\n", r.Server, r.Flush.Round(time.Microsecond), versions())
	if bars := r.bars(); len(bars) > 0 {
		say("%s", table(3, []string{"bar", "measured", "verdict"}, barRows(bars)))
	}
	say("Latency of one client, p50 as a multiple of that of plain transactions in the same round (least to greatest of %d rounds), then p50 and p99 of all rounds:\n", planOf(r.options.quick).rounds)
	say("%s", r.cellTable(func(c *cell) bool { return c.setting.clients == 1 }, latencyOf))
	say("Throughput, as a multiple of that of plain transactions in the same round, and operations per second:\n")
	say("%s", r.cellTable(func(c *cell) bool { return c.setting.clients > 1 }, throughputOf))
	say("One operation, apart from time. Commits are those that are in the log, transactions are those of `pg_stat_database`, which has those that only read as well;\nwhat a contestant does beside while it is at work, above all polling, is among it:\n")
	say("%s", r.costTable())
	p := planOf(r.options.quick)
	say("%d processes with %d operations under way, all in their call, one killed by `kill -9`. From the kill until the bank is called again for each operation of the one that is dead.\n"+
		"Who needs a timeout for that has it set to %v, as if no call took longer:\n", p.workers, p.workers*p.each, p.patience)
	say("%s", r.killTable())
	if len(r.contestants) > 0 {
		say("How each was set up; what is not said is as by default:\n")
		for _, c := range r.contestants {
			say("- %s: %s.", c.Name, c.Settings)
		}
	}
	return text.String()
}

func barRows(bars []bar) (rows [][]string) {
	for _, b := range bars {
		verdict := "met"
		if !b.met {
			verdict = "**missed**"
		}
		rows = append(rows, []string{b.what, b.got, verdict})
	}
	return rows
}

// cellTable has a contestant in each row, and a cell in each column.
func (r *results) cellTable(chosen func(*cell) bool, show func(e, base *entry) string) string {
	header, cells := []string{""}, slices.DeleteFunc(slices.Clone(r.Cells), func(c *cell) bool { return !chosen(c) })
	for _, c := range cells {
		header = append(header, c.setting.String())
	}
	var rows [][]string
	for _, one := range r.contestants {
		row := []string{one.Name}
		for _, c := range cells {
			row = append(row, show(c.entry(one.Name), c.entry(contestant.Plain().Name)))
		}
		rows = append(rows, row)
	}
	return table(1, header, rows)
}

func latencyOf(e, base *entry) string {
	text := fmt.Sprintf("p50 %.2f ms, p99 %.2f ms", milliseconds(quantile(e.latencies, 0.5)), milliseconds(quantile(e.latencies, 0.99)))
	if base == nil {
		return text
	}
	return spreadOf(ratios(e.p50, base.p50)).String() + "; " + text
}

func throughputOf(e, base *entry) string {
	text := fmt.Sprintf("%.0f/s", spreadOf(e.perSecond).median)
	if base == nil {
		return text
	}
	return spreadOf(ratios(e.perSecond, base.perSecond)).String() + "; " + text
}

func (r *results) costTable() string {
	var rows [][]string
	for _, c := range r.Costs {
		commits := "-"
		if c.commits >= 0 {
			commits = fmt.Sprintf("%.1f", c.commits)
		}
		rows = append(rows, []string{c.name, fmt.Sprintf("%.1f", c.trips), commits, fmt.Sprintf("%.1f", c.transactions), fmt.Sprintf("%.0f", c.wal)})
	}
	return table(1, []string{"", "round trips", "commits", "transactions", "bytes of WAL"}, rows)
}

func (r *results) killTable() string {
	var rows [][]string
	for _, k := range r.Kills {
		name, p50, p99, twice := k.contestant.Name, "-", "-", fmt.Sprint(k.charged)
		if len(k.after) > 0 {
			p50, p99 = seconds(quantile(k.after, 0.5)), seconds(quantile(k.after, 0.99))
		}
		withoutKeys, ended := fmt.Sprint(k.called), fmt.Sprintf("%d of %d", k.confirmed, k.orders)
		if k.contestant.Parks != "" {
			twice, ended = "-", fmt.Sprintf("%s, %d parked", ended, k.parked)
		}
		rows = append(rows, []string{name, k.contestant.Resumes, fmt.Sprintf("%d of %d", len(k.after), k.victims), p50, p99, ended, twice, withoutKeys})
	}
	return table(2, []string{"", "who goes on, by default", "went on", "p50", "p99", "confirmed", "orders charged twice", "at a bank without keys"}, rows)
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }

// table is one of Markdown. All columns but the first few hold figures.
func table(words int, header []string, rows [][]string) string {
	var text strings.Builder
	line := func(cells []string) { text.WriteString("| " + strings.Join(cells, " | ") + " |\n") }
	line(header)
	rule := make([]string, len(header))
	for i := range rule {
		rule[i] = "--:"
		if i < words {
			rule[i] = "---"
		}
	}
	line(rule)
	for _, row := range rows {
		line(row)
	}
	return text.String()
}
