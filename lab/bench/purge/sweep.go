package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/idem-go/idem/purge"
)

// These are the requirements.
const (
	maxSweep = 3 * time.Minute // maximum for ten million records
	maxP99   = 1.1             // maximum of p99 with the sweep, relative to without
	maxSize  = 1.5             // maximum size of heap and index, relative to a fresh table
)

// The phases of the foreground.
const (
	before  = "before"
	with    = "with the sweep"
	without = "without, in between"
)

// sweep measures one sweep. The sweep runs in turns, alternating with pauses, and resumes where it
// stopped.
func (h *house) sweep(ctx context.Context) (met bool, err error) {
	begin := time.Now()
	if err := errors.Join(h.exec(ctx, "create table business (id bigint generated always as identity, what text)"), h.fill(ctx, h.records)); err != nil {
		return false, err
	}
	size, err := text(ctx, h, "select concat(pg_size_pretty(pg_relation_size('idem.records')), ' heap, ', pg_size_pretty(pg_indexes_size('idem.records')), ' index')")
	if err != nil {
		return false, err
	}
	fmt.Printf("%d records, half of them expired, %s; filled in %v\n", h.records, size, time.Since(begin).Round(time.Second))
	live, err := h.fingerprint(ctx)
	if err != nil {
		return false, err
	}
	rep, f, err := h.inTurns(ctx)
	if err != nil {
		return false, err
	}
	after, err := h.fingerprint(ctx)
	if err != nil {
		return false, err
	}
	expired, err := h.count(ctx, "select count(*) from idem.records where expires_at < now()")
	if err != nil {
		return false, err
	}
	fmt.Printf("swept in %v, %v of that in statements: deleted %d, kept %d, skipped %d, %d pages\n", rep.Duration.Round(time.Millisecond),
		rep.Tables[0].Working.Round(time.Millisecond), rep.Deleted, rep.Kept, rep.Skipped, rep.Pages)
	for reason, waited := range rep.Tables[0].Waited {
		fmt.Printf("  it waited %v for: %s\n", waited.Round(time.Millisecond), reason)
	}
	for _, phase := range []string{before, with, without} {
		p50, n := f.quantile(phase, 0.5)
		p99, _ := f.quantile(phase, 0.99)
		fmt.Printf("foreground, %-20s %6d calls, p50 %v, p99 %v\n", phase+":", n, p50.Round(time.Microsecond), p99.Round(time.Microsecond))
	}
	h.extrapolate(rep)
	limit := time.Duration(float64(maxSweep) * float64(h.records) / 1e7)
	p99With, _ := f.quantile(with, 0.99)
	p99Without, _ := f.quantile(without, 0.99)
	p99Before, _ := f.quantile(before, 0.99)
	if p99Without == 0 { // the sweep ended in its first turn
		p99Without = p99Before
	}
	return bars(
		bar{fmt.Sprintf("swept in under %v", limit), rep.Duration < limit, rep.Duration.Round(time.Second).String()},
		bar{"all that had expired is gone", expired == 0 && rep.Deleted == h.records/2, fmt.Sprintf("%d left", expired)},
		bar{"no live record touched", live == after, after},
		bar{"p99 with the sweep over p99 without, in turns", ratio(p99With, p99Without) <= maxP99, fmt.Sprintf("%.2f", ratio(p99With, p99Without))},
		bar{"p99 with the sweep over p99 before", ratio(p99With, p99Before) <= maxP99, fmt.Sprintf("%.2f", ratio(p99With, p99Before))},
	), nil
}

func ratio(a, b time.Duration) float64 { return float64(a) / float64(max(b, 1)) }

// inTurns alternates turns of the sweep and pauses until the sweep has ended. The report contains
// the sums over all turns.
func (h *house) inTurns(ctx context.Context) (total purge.Report, f *foreground, err error) {
	f, err = newForeground(ctx, h.pool.Config().ConnString(), h.rate)
	if err != nil {
		return total, f, err
	}
	defer f.pool.Close()
	calling, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() { defer close(ended); f.run(calling) }()
	defer func() { stop(); <-ended; err = errors.Join(err, f.err) }()
	f.in("warming up")
	if err := sleep(ctx, h.turn/2); err != nil {
		return total, f, err
	}
	f.in(before)
	if err := sleep(ctx, 3*h.turn); err != nil {
		return total, f, err
	}
	total.Tables = []purge.Sweep{{Waited: map[purge.Reason]time.Duration{}}}
	for {
		f.in(with)
		rep, err := purge.Once(ctx, h.pool, purge.Options{Max: h.turn, Share: h.share})
		if err != nil {
			return total, f, err
		}
		add(&total, &rep)
		if rep.Tables[0].Ended != purge.TimeIsUp {
			if rep.Tables[0].Ended != purge.Finished {
				err = fmt.Errorf("the sweep ended: %s", rep.Tables[0].Ended)
			}
			return total, f, err
		}
		f.in(without)
		if err := sleep(ctx, h.turn); err != nil {
			return total, f, err
		}
	}
}

func add(total, rep *purge.Report) {
	total.Deleted += rep.Deleted
	total.Kept += rep.Kept
	total.Skipped += rep.Skipped
	total.Pages += rep.Pages
	total.Duration += rep.Duration
	total.Tables[0].Working += rep.Tables[0].Working
	for reason, waited := range rep.Tables[0].Waited {
		total.Tables[0].Waited[reason] += waited
	}
}

// extrapolate prints the estimated time of a sweep over 10^8 records. A sweep reads each heap page
// once and no index. Its time is therefore proportional to the pages and to the deleted records, as
// long as the disk is as fast as here.
func (h *house) extrapolate(rep purge.Report) {
	const many = 1e8
	perRecord := rep.Duration.Seconds() / float64(h.records)
	read := float64(rep.Pages) * 8192 / rep.Tables[0].Working.Seconds() / 1e6
	fmt.Printf("extrapolated to 10^8 records, half of them expired: %v; the pages were read at %.0f MB/s while it worked\n",
		time.Duration(many*perRecord*float64(time.Second)).Round(time.Second), read)
	fmt.Printf("with all of them expired, at most: %v\n", time.Duration(2*many*perRecord*float64(time.Second)).Round(time.Second))
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
