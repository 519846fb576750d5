package main

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/idem-go/idem/lab/torture/check"
	"github.com/idem-go/idem/lab/torture/fault"
	"github.com/idem-go/idem/lab/torture/history"
)

// faultLine is a line of the file of faults.
type faultLine struct {
	Shard uint8 `json:"p"`
	fault.Event
}

func readFaults(dir string) ([]fault.Event, error) {
	var faults []fault.Event
	err := history.Lines(filepath.Join(dir, faultFile), func(line []byte) error {
		decoded, err := history.Decode[faultLine](line)
		faults = append(faults, decoded.Event)
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return faults, err
}

// losses returns the periods in which acknowledged executions may be lost.
func losses(faults []fault.Event) []check.Interval {
	var all []check.Interval
	for _, f := range faults {
		if f.Loses {
			all = append(all, check.Interval{From: f.At, To: f.At + f.For})
		}
	}
	return all
}

// clockMoved returns the moments around the jumps of the clock: the beginning and the end of each
// fault.
func clockMoved(faults []fault.Event) []check.Interval {
	const moment = 500 * time.Millisecond
	var all []check.Interval
	for _, f := range faults {
		if f.MovesClock {
			all = append(all, check.Interval{From: f.At, To: f.At + moment}, check.Interval{From: f.At + f.For - moment, To: f.At + f.For})
		}
	}
	return all
}

// kills returns the deaths of workers.
func kills(faults []fault.Event) []check.Kill {
	var all []check.Kill
	for _, f := range faults {
		if f.Kills {
			all = append(all, check.Kill{Slot: f.Worker, At: f.At})
		}
	}
	return all
}

// listFaults is the command "faults".
func listFaults() error {
	print := func(name fault.Name, about string, possible error) {
		if possible != nil {
			about += fmt.Sprintf("; NOT POSSIBLE HERE: %v", possible)
		}
		fmt.Printf("  %-20s %s\n", name, about)
	}
	fmt.Println("faults of the main leg:")
	for _, k := range fault.Kinds() {
		print(k.Name, k.About, k.Possible)
	}
	fmt.Println("legs, each on servers of its own:")
	for _, l := range fault.Legs() {
		print(l.Name, l.About, l.Possible)
	}
	print(fault.Fleet, fleetAbout, impossible(fault.Fleet))
	return nil
}
