package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/idem-go/idem/lab/bench/operations/contestant"
	"github.com/idem-go/idem/lab/sidebyside"
)

// String is the section of the report.
func (r *results) String() string {
	var text strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&text, format+"\n", args...) }
	if r.options.Quick {
		say("**A quick run: it shows that everything runs, and its figures say nothing.**\n")
	}
	say("%s", r.Host.Preamble("lab/bench/operations/", sidebyside.Command(), r.Took))
	say("%s; a COMMIT waits %v for the disk.\nVersions: %s.\n", r.Server, r.Flush.Round(time.Microsecond), sidebyside.Versions(compared...))
	if bars := r.bars(); len(bars) > 0 {
		say("%s", sidebyside.BarTable(bars))
	}
	p := r.plan
	if len(r.Cells) > 0 {
		say("Latency of one client: the p50 as a multiple of that of plain transactions in the same round (median, least and greatest of %d rounds), then p50 and p99 of all rounds.\n", p.rounds)
		say("%s", r.cellTable(func(c *cell) bool { return c.setting.clients == 1 }, latencyOf))
		say("Throughput, as a multiple of that of plain transactions in the same round, and in operations per second:\n")
		say("%s", r.cellTable(func(c *cell) bool { return c.setting.clients > 1 }, throughputOf))
	}
	if len(r.Costs) > 0 {
		say("One operation of a single client, apart from time. Commits are those that are in the log; transactions are those of `pg_stat_database`, which counts\nthose that only read as well. What a contestant does beside while it is at work, above all polling, is among it.\n")
		say("%s", r.costTable())
	}
	if len(r.Kills) > 0 {
		say("%d processes with %d operations under way, all of them in their call, one killed by `kill -9`: how long after the kill the bank is called again for each\noperation of the one that is dead. The bank answers those of the others within %v.\n", p.workers, p.workers*p.each, p.slow())
		say("%s", r.killTable())
		say("Who needs a timeout to see that a process is dead has it set to %v here, as if no call took longer; by default it is as the table says. The process of DBOS\n"+
			"is started again at once, as by a supervisor that needs no time to notice; nothing goes on otherwise, short of its Conductor. The last column is how many\n"+
			"orders were asked for more than once, which a bank without keys would have charged as often.\n", p.patience)
	}
	if len(r.contestants) > 0 {
		say("How each was set up; what is not said is as by default:\n")
		for _, c := range r.contestants {
			say("- %s: %s.", c.Name, c.Settings)
		}
	}
	return text.String()
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
	return sidebyside.Table(1, header, rows)
}

func latencyOf(e, base *entry) string {
	text := fmt.Sprintf("p50 %.2f ms, p99 %.2f ms", sidebyside.Milliseconds(sidebyside.Quantile(e.latencies, 0.5)), sidebyside.Milliseconds(sidebyside.Quantile(e.latencies, 0.99)))
	if base == nil {
		return text
	}
	return sidebyside.SpreadOf(sidebyside.Ratios(e.p50, base.p50)).String() + "; " + text
}

func throughputOf(e, base *entry) string {
	text := fmt.Sprintf("%.0f/s", sidebyside.SpreadOf(e.perSecond).Median)
	if base == nil {
		return text
	}
	return sidebyside.SpreadOf(sidebyside.Ratios(e.perSecond, base.perSecond)).String() + "; " + text
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
	return sidebyside.Table(1, []string{"", "round trips", "commits", "transactions", "bytes of WAL"}, rows)
}

func (r *results) killTable() string {
	var rows [][]string
	for _, k := range r.Kills {
		name, p50, p99, twice := k.contestant.Name, "-", "-", fmt.Sprint(k.charged)
		if len(k.after) > 0 {
			p50, p99 = seconds(sidebyside.Quantile(k.after, 0.5)), seconds(sidebyside.Quantile(k.after, 0.99))
		}
		withoutKeys, ended := fmt.Sprint(k.called), fmt.Sprintf("%d of %d", k.confirmed, k.orders)
		if k.contestant.Parks != "" {
			twice, ended = "-", fmt.Sprintf("%s, %d parked", ended, k.parked)
		}
		rows = append(rows, []string{name, k.contestant.Resumes, fmt.Sprintf("%d of %d", len(k.after), k.victims), p50, p99, ended, twice, withoutKeys})
	}
	return sidebyside.Table(2, []string{"", "who goes on, by default", "went on", "p50", "p99", "confirmed", "charged twice", "asked for twice"}, rows)
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }
