package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/idem-go/idem/lab/bench/operations/contestant"
	"github.com/idem-go/idem/lab/sidebyside"
)

// bars judges what was measured. What was not is left out.
func (r *results) bars() (all []sidebyside.Bar) {
	idem, plain := contestant.Idem().Name, contestant.Plain().Name
	add := func(met bool, what, got string, args ...any) {
		all = append(all, sidebyside.Bar{What: what, Got: fmt.Sprintf(got, args...), Met: met})
	}
	own, base := r.cost(idem), r.cost(plain)
	if own == nil || base == nil {
		return nil
	}
	// What a Worker and a presence do beside is among it: once a second each.
	const beside = 0.1
	if own.commits >= 0 {
		add(own.commits <= 2+beside, "commits of Tx, Call, Tx: 2", "%.2f", own.commits)
		for _, c := range r.Costs {
			if c.name != idem && c.name != plain {
				add(own.commits < c.commits, "fewer commits than "+c.name, "%.2f against %.2f", own.commits, c.commits)
			}
		}
	}
	add(own.trips <= base.trips+4+beside, "round trips: at most 4 more than plain transactions around the call", "%.2f against %.2f", own.trips, base.trips)
	for _, cell := range r.Cells {
		r.compare(cell, idem, plain, add)
	}
	if r.Crowd > 0 {
		add(r.Crowd < 2*time.Second, fmt.Sprintf("%d operations at once on a pool of %d, bank at %v: under 2 s", crowdSize, crowdPool, crowdDelay), "%v", r.Crowd.Round(time.Millisecond))
	}
	for _, k := range r.Kills {
		switch {
		case k.contestant.Name == idem:
			p99 := sidebyside.Quantile(k.after, 0.99)
			met := len(k.after) == k.victims && p99 <= 1500*time.Millisecond
			add(met, "resume after kill -9: p99 at most 1.5 s, and all go on", "%v, %d of %d", p99.Round(time.Millisecond), len(k.after), k.victims)
			add(k.charged == 0 && k.confirmed == k.orders, "no order charged twice, all confirmed", "%d twice, %d of %d confirmed", k.charged, k.confirmed, k.orders)
		case k.contestant.Parks != "":
			add(k.charged == 0 && k.parked == k.victims, "bank without keys, Once: no order charged twice, those of unknown outcome are parked", "%d twice, %d of %d parked", k.charged, k.parked, k.victims)
		}
	}
	return all
}

// compare judges idem in one cell.
func (r *results) compare(c *cell, idem, plain string, add func(bool, string, string, ...any)) {
	own := c.entry(idem)
	for _, e := range c.entries {
		switch {
		case e.name == idem || e.name == plain:
		case c.setting.clients > 1:
			s := sidebyside.SpreadOf(sidebyside.Ratios(own.perSecond, e.perSecond))
			add(s.Median > 1, fmt.Sprintf("%v: more throughput than %s", c.setting, e.name), "%v times", s)
		case strings.HasPrefix(e.name, "DBOS") && c.setting.delay == 0:
			s := sidebyside.SpreadOf(sidebyside.Ratios(own.p50, e.p50))
			add(s.Median <= 1./3, fmt.Sprintf("%v: at most a third of the latency of %s", c.setting, e.name), "%v of it", s)
		}
	}
}

func (r *results) cost(name string) *cost {
	for i := range r.Costs {
		if r.Costs[i].name == name {
			return &r.Costs[i]
		}
	}
	return nil
}

func (c *cell) entry(name string) *entry {
	for _, e := range c.entries {
		if e.name == name {
			return e
		}
	}
	return nil
}
