package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/idem-go/idem/lab/bench/contestant"
	"github.com/idem-go/idem/lab/bench/result"
	"github.com/idem-go/idem/lab/sidebyside"
)

// results is all that was measured.
type results struct {
	options sidebyside.Options
	only    *regexp.Regexp
	plan    plan
	host    sidebyside.Host
	server  string
	flush   time.Duration
	took    time.Duration

	accounts     []*account
	logs         []logged
	samples      []sampled
	instructions []counted
	sizes        []*size
	absent       []string
}

func newResults(o sidebyside.Options) (*results, error) {
	only, err := regexp.Compile(o.Only)
	return &results{options: o, only: only, plan: planOf(o.Quick, o.Seed), host: sidebyside.Here()}, err
}

func (r *results) leftOut(what string) { r.absent = append(r.absent, what) }

// String is the section of the report.
func (r *results) String() string {
	var text strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&text, format+"\n", args...) }
	if r.options.Quick {
		say("**A quick run: it shows that everything runs, and its figures say nothing.**\n")
	}
	say("%s", r.host.Preamble("lab/bench/profile/", strings.Replace(sidebyside.Command(), "go run", "go run "+withNames, 1), r.took))
	say("%s; a COMMIT waits %v for the disk.\n", r.server, r.flush.Round(time.Microsecond))
	for _, what := range r.absent {
		say("Left out: %s.\n", what)
	}
	for _, a := range r.accounts {
		say("### What %s consists of\n", a.work.Name)
		say("%s", a.table())
		say("%s", a.meaning())
	}
	if len(r.logs) > 0 {
		say("### What is in the log\n\nBytes of the write-ahead log that a first run of one INSERT leaves, by what they are about.\n")
		say("%s", r.logTable())
		say("%s", r.overPlain())
	}
	if len(r.samples) > 0 {
		say("### In which programs the time is spent\n\nProcessor time of a first run of one INSERT, in microseconds, and its share: what perf has found, applied to the time without it.\n")
		say("%s", r.programTable())
		say("%s", r.hottest())
	}
	if len(r.instructions) > 0 {
		say("### How many instructions the server executes\n\nInstructions of PostgreSQL's own, without the kernel's, in a first run of one INSERT: what callgrind has counted in a session of %d calls less one of %d, for each call.\n", settled+r.plan.counted, settled)
		say("%s", r.instructionTable())
	}
	if len(r.sizes) > 0 {
		say("### By the size of the table\n\nidem.Do with random keys, one INSERT, 1 client. Processor time of the server, as a multiple of that with the fewest records in the same round, and in microseconds;\nand the pages of table and index that one record is found with.\n")
		say("%s", r.sizeTable())
	}
	return strings.TrimRight(text.String(), "\n") + "\n"
}

// table has a course in each row.
func (a *account) table() string {
	var rows [][]string
	base := a.rows[0]
	for _, row := range a.rows {
		rows = append(rows, []string{
			row.course.name,
			row.ratio(base, timing.latency), row.median(timing.latency),
			row.median(timing.onServer), row.median(timing.onClient),
			row.ratio(base, timing.processor),
		})
	}
	return sidebyside.Table(1, []string{"", "p50, as a multiple", "p50, µs", "server, µs", "client, µs", "both together, as a multiple"}, rows)
}

func (t timing) latency() float64   { return t.p50 }
func (t timing) onServer() float64  { return t.server }
func (t timing) onClient() float64  { return t.client }
func (t timing) processor() float64 { return t.server + t.client }

func (r row) all(of func(timing) float64) (all []float64) {
	for _, t := range r.timings {
		all = append(all, of(t))
	}
	return all
}

func (r row) median(of func(timing) float64) string {
	return fmt.Sprintf("%.1f", sidebyside.SpreadOf(r.all(of)).Median)
}

func (r row) ratio(base row, of func(timing) float64) string {
	return sidebyside.SpreadOf(sidebyside.Ratios(r.all(of), base.all(of))).String()
}

// meaning says what the table bounds: a machine whose processors are all busy does so many calls as they have time for.
func (a *account) meaning() string {
	if a.work.again {
		return "A replay that is not expected is begun as a first run is: BEGIN, a claim that finds a record, and the load. The caller has the answer after that; the ROLLBACK, a second\n" +
			"round trip, goes on without it, and is among the processor time. One that is expected is the load alone.\n"
	}
	find := func(name string) *row {
		at := slices.IndexFunc(a.rows, func(r row) bool { return r.course.name == name })
		if at < 0 {
			return nil
		}
		return &a.rows[at]
	}
	plain, bare, do := find(contestant.NamePlain), find(twoWrites), find(contestant.NameIdem)
	if plain == nil || bare == nil || do == nil {
		return ""
	}
	share := func(of func(timing) float64, r *row) float64 {
		return 1 / sidebyside.SpreadOf(sidebyside.Ratios(r.all(of), plain.all(of))).Median
	}
	return fmt.Sprintf("Two bare writes of a record beside the effect leave %.2f of the plain transaction's throughput to one client that waits, and %.2f where the processors\n"+
		"are what all wait for. With idem.Do it is %.2f and %.2f.\n",
		share(timing.latency, bare), share(timing.processor, bare), share(timing.latency, do), share(timing.processor, do))
}

func (r *results) logTable() string {
	header, rows := []string{""}, [][]string{}
	total := []string{"together"}
	for _, l := range r.logs {
		header = append(header, l.course)
		var sum float64
		for _, bytes := range l.bytes {
			sum += bytes
		}
		total = append(total, fmt.Sprintf("%.0f", sum))
	}
	for _, kind := range kinds {
		line := []string{kind.name}
		for _, l := range r.logs {
			line = append(line, fmt.Sprintf("%.0f", l.bytes[kind.name]))
		}
		rows = append(rows, line)
	}
	return sidebyside.Table(1, header, append(rows, total))
}

// overPlain says how much of the log is due to having a record at all.
func (r *results) overPlain() string {
	total := map[string]float64{}
	for _, l := range r.logs {
		for _, bytes := range l.bytes {
			total[l.course] += bytes
		}
	}
	plain, bare, do := total[contestant.NamePlain], total[twoWrites], total[contestant.NameIdem]
	if plain == 0 || bare == 0 || do == 0 {
		return ""
	}
	return fmt.Sprintf("Over the plain transaction, two bare writes of a record leave %.0f bytes, and idem.Do %.0f. What it has beside them: an INSERT that may find a record has to\n"+
		"be confirmed, and the completion locks the row that it updates, because it is an upsert, which needs no plan that could be a bad one.\n", bare-plain, do-plain)
}

func (r *results) programTable() string {
	header, rows := []string{""}, [][]string{}
	for _, s := range r.samples {
		header = append(header, s.course)
	}
	for _, name := range programNames {
		line := []string{name}
		for _, s := range r.samples {
			line = append(line, fmt.Sprintf("%.1f (%.0f %%)", s.shares[name]*s.each, 100*s.shares[name]))
		}
		rows = append(rows, line)
	}
	return sidebyside.Table(1, header, rows)
}

// hottest tells whether there is one thing that takes the time.
func (r *results) hottest() string {
	var all []string
	for _, s := range r.samples {
		all = append(all, fmt.Sprintf("`%s` with %.0f %% (%s)", s.first.name, 100*s.first.share, s.course))
	}
	return "Of PostgreSQL's own functions that have a name here, the one with the most of its part is " + strings.Join(all, ", ") + ".\n"
}

func (r *results) instructionTable() string {
	bare, rows := 0.0, [][]string{}
	for _, c := range r.instructions {
		if c.course == twoWrites {
			bare = c.each
		}
	}
	for _, c := range r.instructions {
		ratio := "-"
		if bare > 0 {
			ratio = fmt.Sprintf("%.2f", c.each/bare)
		}
		rows = append(rows, []string{c.course, result.Grouped(c.each), ratio})
	}
	return sidebyside.Table(1, []string{"", "instructions", "as a multiple of two bare writes"}, rows)
}

func (r *results) sizeTable() string {
	least, rows := r.sizes[0], [][]string{}
	firsts, replays := row{timings: least.firsts}, row{timings: least.replay}
	for _, s := range r.sizes {
		first, replay := row{timings: s.firsts}, row{timings: s.replay}
		rows = append(rows, []string{
			fmt.Sprint(s.records), fmt.Sprint(s.pages), first.ratio(firsts, timing.onServer), first.median(timing.onServer),
			replay.ratio(replays, timing.onServer), replay.median(timing.onServer),
		})
	}
	return sidebyside.Table(0, []string{"records", "pages", "first run", "µs", "replay", "µs"}, rows)
}
