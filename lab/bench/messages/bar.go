package main

import (
	"fmt"

	"github.com/idem-go/idem/lab/bench/messages/in"
	"github.com/idem-go/idem/lab/bench/messages/out"
	"github.com/idem-go/idem/lab/sidebyside"
)

// bars judges what was measured, against a floor of the same run, as machines differ by more than libraries do. What was not is left out.
func (r *results) bars() (all []sidebyside.Bar) {
	add := func(met bool, what, got string, args ...any) {
		all = append(all, sidebyside.Bar{What: what, Got: fmt.Sprintf(got, args...), Met: met})
	}
	if len(r.effects) > 0 {
		one := r.effects[0].entries
		if floor, batch := find(one, in.PlainBatch().Name), find(one, in.Batch().Name); floor != nil && batch != nil {
			share := sidebyside.SpreadOf(sidebyside.Ratios(batch.perSecond, floor.perSecond))
			add(share.Median >= 0.6, "Batch of 1,000: at least 0.6 of the same INSERTs by the thousand, with no inbox", "%v; %s/s", share, number(int(sidebyside.SpreadOf(batch.perSecond).Median)))
		}
	}
	if own, byHand := find(r.stock, out.Idem().Name), find(r.stock, out.ByHand().Name); own != nil && byHand != nil {
		share := sidebyside.SpreadOf(sidebyside.Ratios(own.perSecond, byHand.perSecond))
		add(share.Median >= 0.5, "Relay: at least half of what one loop by hand finds and publishes", "%v; %s/s", share, number(int(sidebyside.SpreadOf(own.perSecond).Median)))
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
