package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"strconv"

	"github.com/idem-go/idem/lab/bench/arena"
	"github.com/idem-go/idem/lab/bench/contestant"
	"github.com/idem-go/idem/lab/bench/measure"
	"github.com/idem-go/idem/lab/sidebyside"
)

// size is what calls take with so many records in the table.
type size struct {
	records        int
	pages          int // of table and index that one key is found with
	stand          *stand
	keys           []string // that have a record
	firsts, replay []timing
}

// sizes measures calls of idem.Do on tables of several sizes, on a server of its own that does not log how they are filled.
func sizes(ctx context.Context, s *sidebyside.Server, r *results) (err error) {
	dir, err := os.MkdirTemp(r.options.Data, "idem-profile-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := os.Chmod(dir, 0o755); err != nil { // the server runs as another user
		return err
	}
	server, err := arena.StartServer(ctx, dir, arena.Spec{Name: "sizes", MemoryGB: memoryGB(), Load: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	lane, err := arena.NewLane(server, 0, false, poolSize)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lane.Close()) }()
	source := measure.NewSource(r.plan.seed, contestant.OneInsert, responseSize)
	for _, records := range r.plan.sizes {
		sidebyside.Say("loading %d records", records)
		one, err := filled(ctx, lane, source, records)
		if err != nil {
			return err
		}
		r.sizes = append(r.sizes, one)
	}
	return timingsBySize(ctx, r.sizes, source, r.plan)
}

func filled(ctx context.Context, lane *arena.Lane, source *measure.Source, records int) (*size, error) {
	booth, err := lane.Open(ctx, contestant.Idem())
	if err != nil {
		return nil, err
	}
	pattern := source.Template
	pattern.Key = source.Take(1)[0]
	if err := booth.Load(ctx, records, pattern); err != nil {
		return nil, err
	}
	one := &size{records: records}
	if one.keys, err = booth.Sample(ctx, sampledKeys); err != nil {
		return nil, err
	}
	if one.pages, err = pagesOf(ctx, booth, one.keys[0]); err != nil {
		return nil, err
	}
	one.stand = &stand{
		course: course{name: contestant.NameIdem}, pool: booth.Pool, clock: booth.Clock(),
		do: func(ctx context.Context, call contestant.Call) error {
			_, err := booth.Runner.Do(ctx, call)
			return err
		},
	}
	return one, nil
}

const sampledKeys = 20_000

// timingsBySize lets all sizes take turns, in another order each round, and first runs and replays with each.
func timingsBySize(ctx context.Context, all []*size, source *measure.Source, p plan) error {
	random := rand.New(rand.NewPCG(p.seed, 1))
	for round := -1; round < p.rounds; round++ { // the first is not counted
		for _, i := range random.Perm(len(all)) {
			one := all[i]
			first, err := one.stand.take(ctx, source.Template, source.Take(p.calls))
			if err != nil {
				return err
			}
			old := make([]string, p.calls)
			for k := range old {
				old[k] = one.keys[random.IntN(len(one.keys))]
			}
			replay, err := one.stand.take(ctx, source.Template, old)
			if err != nil {
				return err
			}
			if round >= 0 {
				one.firsts, one.replay = append(one.firsts, first), append(one.replay, replay)
			}
		}
	}
	return nil
}

// touched is how many pages a plan has used.
var touched = regexp.MustCompile(`Buffers: shared hit=(\d+)`)

// pagesOf counts the pages of table and index that a record is found with, once they are in memory.
func pagesOf(ctx context.Context, booth *arena.Booth, key string) (pages int, err error) {
	for range 2 {
		var text string
		rows, err := booth.Pool.Query(ctx, "explain (analyze, buffers, costs off, timing off, summary off) select body from idem.records where scope = $1 and key = $2", contestant.Scope, key)
		if err != nil {
			return 0, err
		}
		for rows.Next() {
			var line string
			if err := rows.Scan(&line); err != nil {
				return 0, err
			}
			text += line + "\n"
		}
		if err := rows.Err(); err != nil {
			return 0, err
		}
		match := touched.FindStringSubmatch(text)
		if match == nil {
			return 0, fmt.Errorf("no pages in the plan:\n%s", text)
		}
		if pages, err = strconv.Atoi(match[1]); err != nil {
			return 0, err
		}
	}
	return pages, nil
}

// memoryGB is what the machine has, and 4 where that cannot be read.
func memoryGB() int {
	text, _ := os.ReadFile("/proc/meminfo")
	if match := regexp.MustCompile(`MemTotal:\s+(\d+) kB`).FindSubmatch(text); match != nil {
		kB, _ := strconv.Atoi(string(match[1]))
		return kB >> 20
	}
	return 4
}
