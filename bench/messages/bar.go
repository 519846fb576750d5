package main

import (
	"fmt"

	"github.com/idem-go/idem/bench/messages/in"
	"github.com/idem-go/idem/bench/messages/out"
	"github.com/idem-go/idem/internal/sidebyside"
)

// bars judges what was measured. What was not is left out.
func (r *results) bars() (all []sidebyside.Bar) {
	add := func(met bool, what, got string, args ...any) {
		all = append(all, sidebyside.Bar{What: what, Got: fmt.Sprintf(got, args...), Met: met})
	}
	if len(r.effects) > 0 {
		one := r.effects[0].entries
		if handle, batch := find(one, in.Handle().Name), find(one, in.Batch().Name); handle != nil && batch != nil {
			times := sidebyside.SpreadOf(sidebyside.Ratios(batch.perSecond, handle.perSecond))
			add(times.Median >= 20, "Batch of 1,000: at least 20 times Handle one by one", "%v times", times)
			rate := sidebyside.SpreadOf(batch.perSecond)
			add(rate.Median >= 8000, "Batch: at least 8,000 effects a second, an INSERT each", "%s (%s to %s)", number(int(rate.Median)), number(int(rate.Least)), number(int(rate.Greatest)))
		}
	}
	if e := find(r.stock, out.Idem().Name); e != nil {
		rate := sidebyside.SpreadOf(e.perSecond)
		add(rate.Median >= 20_000, "Relay: at least 20,000 messages a second into a publisher that does nothing", "%s (%s to %s)", number(int(rate.Median)), number(int(rate.Least)), number(int(rate.Greatest)))
	}
	r.costBars(add)
	for _, c := range r.killed {
		switch {
		case c.name == out.Idem().Name:
			a := c.account
			add(a.Lost+a.Phantoms+a.Inverted == 0, "killed: "+c.name+" loses, makes up and reorders nothing", "%d lost, %d made up, %d out of order, of %s", a.Lost, a.Phantoms, a.Inverted, number(a.Committed))
		case c.name == in.Handle().Name, c.name == in.Batch().Name, c.name == in.Bulk().Name:
			add(c.lost+c.doubled == 0, "killed: "+c.name+" loses and doubles no effect", "%d lost, %d doubled, of %s", c.lost, c.doubled, number(c.made))
		}
	}
	return all
}

// costBars judges what a message costs the transaction that adds it.
func (r *results) costBars(add func(bool, string, string, ...any)) {
	plain, piped, own, ownPiped, byHand := r.cost(out.Plain()), r.cost(out.PlainPiped()), r.cost(out.Idem()), r.cost(out.IdemPiped()), r.cost(out.ByHand())
	if piped != nil && ownPiped != nil {
		add(ownPiped.trips <= piped.trips, "Queue costs no round trip", "%.2f against %.2f", ownPiped.trips, piped.trips)
	}
	if plain != nil && own != nil && byHand != nil {
		add(own.wal <= 1.15*byHand.wal, "WAL of the transaction: at most 1.15 times that of a bare row", "%.2f times: %.0f against %.0f bytes", own.wal/byHand.wal, own.wal, byHand.wal)
	}
}

func (r *results) cost(c out.Contestant) *cost {
	for i := range r.costs {
		if r.costs[i].name == c.Name {
			return &r.costs[i]
		}
	}
	return nil
}
