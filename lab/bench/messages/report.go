package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/idem-go/idem/lab/bench/messages/in"
	"github.com/idem-go/idem/lab/bench/messages/out"
	"github.com/idem-go/idem/lab/sidebyside"
)

// String is the section of the report.
func (r *results) String() string {
	var text strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&text, format+"\n", args...) }
	p, host := r.plan, r.host
	if r.options.Quick {
		say("**A quick run: it shows that everything runs, and its figures say nothing.**\n")
	}
	say("%s", host.Preamble("lab/bench/messages/", sidebyside.Command(), r.took))
	say("%s; a COMMIT waits %v for the disk.\nVersions: %s.\n", r.server.Described, r.server.Flush.Round(time.Microsecond), sidebyside.Versions(compared...))
	if bars := r.bars(); len(bars) > 0 {
		say("%s", sidebyside.BarTable(bars))
	}
	if len(r.saving)+len(r.costs) > 0 {
		say("### Out: what telling costs the transaction\n")
		say("An order is one INSERT, and an UPDATE of its customer's row with an INSERT behind it. One client, and no relay. Round trips and bytes of write-ahead log are those")
		say("of one order. The latency is the p50 as a multiple of that of the plain transaction in the same round (median, least and greatest of %d rounds), then p50 and p99 of", p.rounds)
		say("all rounds. Those that send their statements in one batch are compared with each other.\n")
		say("%s", r.savingTable())
	}
	if len(r.through)+len(r.lag)+len(r.stock) > 0 {
		say("### Out: from the commit to the broker\n")
		say("End to end: %d clients place orders of %d customers as fast as they can, beside the relay in the same process, until all is published; as a multiple of the plain", p.clients, p.customers)
		say("transaction's orders in the same round. Out of order are messages that were first published after a later one of their customer, although no process was killed. Lag: from")
		say("the commit to the broker, at %d orders a second. Found: a relay is started in front of %s messages, with a broker that does nothing but write down what comes.\n", p.pace, number(p.stock))
		say("%s", r.relayTable())
		say("Watermill's subscriber reads in the order of transaction ids, which a transaction gets at its first write: here before it has the customer's row. Jobs of River")
		say("have no order, and neither has who publishes after the commit.\n")
	}
	if len(r.effects) > 0 {
		say("### In: an effect for each message\n")
		say("An effect is one row. Of 100 messages five come twice in a row, so that both may be in hand at once, and five come again a thousand messages later. Messages")
		say("a second, each counted once, and as a multiple of the plain transaction's in the same round, which remembers nothing. Doubled are messages with more than one effect, in all")
		say("rounds; no process was killed. None has lost one: that fails the run.\n")
		say("%s", r.effectTable())
	}
	if len(r.killed) > 0 {
		r.sayKilled(say)
	}
	r.saySettings(say)
	return text.String()
}

func (r *results) sayKilled(say func(string, ...any)) {
	k := r.plan.kills
	say("### Killed\n")
	say("A process of each contestant is killed by `kill -9` up to %d times, at a random moment after %s more messages were published, or acknowledged; another follows at", k.times, number(k.between))
	say("once, and the last one finishes. What has not come when nothing has come for %v is lost. The figures are counts, of this run: another one kills at other moments.\n", k.rest)
	if all := r.ofSide(false); len(all) > 0 {
		say("Out: %d clients place orders of %d customers beside the relay, with a pause of %v between them, and the broker takes %v to confirm a call. That a message is published twice, under the same id, is", r.plan.clients, r.plan.customers, k.pause, k.confirm)
		say("what at least once means, and is expected of all who have a relay. Out of order are messages that were first published after a later one of their customer.\n")
		var rows [][]string
		for _, c := range all {
			a := c.account
			rows = append(rows, []string{c.name, c.promises, number(c.kills), number(a.Committed), number(a.Lost), number(a.Phantoms), number(a.Inverted), number(a.Twice)})
		}
		say("%s", sidebyside.Table(2, []string{"", "promises", "killed", "committed", "lost", "not committed", "out of order", "published twice, same id"}, rows))
	}
	if all := r.ofSide(true); len(all) > 0 {
		say("In: %d workers, batches of up to %d, and the same repetitions as above. What a process has not acknowledged when it is killed is delivered again.\n", k.workers, k.batch)
		var rows [][]string
		for _, c := range all {
			rows = append(rows, []string{c.name, c.promises, number(c.kills), number(c.made), number(c.lost), number(c.doubled)})
		}
		say("%s", sidebyside.Table(2, []string{"", "promises", "killed", "messages", "effects lost", "effects doubled"}, rows))
	}
	say("River sees by a timeout that a process is dead: RescueStuckJobsAfter and JobTimeout are %v here, as if no job took longer, by default an hour and a minute. A job that it has\nrescued is tried again a second later where it publishes, by default after 1, 16 and 81 s.\n", k.patience)
}

func (r *results) saySettings(say func(string, ...any)) {
	say("How each was set up; what is not said is as by default:\n")
	for _, c := range r.out {
		say("- %s (out): %s.", c.Name, c.Settings)
	}
	for _, c := range r.in {
		say("- %s (in): %s.", c.Name, c.Settings)
	}
	say("\nWhat this does not show: several machines, a network between them, a broker that is the bottleneck, more than two cores, hours under load. The clients, the relay and the")
	say("server share the cores, so one that leaves more to the server or to the client leaves less for the others.")
}

func (r *results) savingTable() string {
	var rows [][]string
	for _, c := range r.out {
		trips, wal, latency := "-", "-", "-"
		if found := r.cost(c); found != nil {
			trips, wal = fmt.Sprintf("%.1f", found.trips), number(int(found.wal+0.5))
		}
		if e := find(r.saving, c.Name); e != nil {
			latency = latencyOf(e)
			if base := find(r.saving, baseOf(c).Name); base != nil {
				latency = sidebyside.SpreadOf(sidebyside.Ratios(e.p50, base.p50)).String() + "; " + latency
			}
		}
		rows = append(rows, []string{c.Name, trips, wal, latency})
	}
	return sidebyside.Table(1, []string{"", "round trips", "bytes of WAL", "latency"}, rows)
}

// baseOf is with whom one is compared.
func baseOf(c out.Contestant) out.Contestant {
	if c.Piped {
		return out.PlainPiped()
	}
	return out.Plain()
}

func (r *results) relayTable() string {
	var rows [][]string
	for _, c := range r.out {
		if c.Piped {
			continue
		}
		row := []string{c.Name, "-", "-", "-", "-"}
		if e := find(r.through, c.Name); e != nil {
			row[1] = rateOf(e, find(r.through, out.Plain().Name))
			if !c.Silent {
				row[2] = fmt.Sprintf("%s of %s", number(e.account.Inverted), number(e.account.Committed))
			}
		}
		if e := find(r.lag, c.Name); e != nil {
			row[3] = latencyOf(e)
		}
		if e := find(r.stock, c.Name); e != nil {
			row[4] = rateOf(e, nil)
		}
		rows = append(rows, row)
	}
	return sidebyside.Table(1, []string{"", "end to end", "out of order", "lag", "found, published"}, rows)
}

func (r *results) effectTable() string {
	header := []string{""}
	for _, c := range r.effects {
		if c.workers == 1 {
			header = append(header, "one worker", "doubled")
		} else {
			header = append(header, fmt.Sprintf("%d workers", c.workers), "doubled")
		}
	}
	var rows [][]string
	for _, one := range r.in {
		row := []string{one.Name}
		for _, c := range r.effects {
			e := find(c.entries, one.Name)
			row = append(row, rateOf(e, find(c.entries, in.Plain().Name)), number(e.doubled))
		}
		rows = append(rows, row)
	}
	return sidebyside.Table(1, header, rows)
}

func latencyOf(e *entry) string {
	return fmt.Sprintf("p50 %.2f ms, p99 %.2f ms", milliseconds(e, 0.5), milliseconds(e, 0.99))
}

func rateOf(e, base *entry) string {
	text := number(int(sidebyside.SpreadOf(e.perSecond).Median)) + "/s"
	if base == nil || e.name == base.name {
		return text
	}
	return sidebyside.SpreadOf(sidebyside.Ratios(e.perSecond, base.perSecond)).String() + "; " + text
}

// number is one with commas between its thousands.
func number(n int) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
