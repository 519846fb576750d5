// Package result is what a run of the benchmark leaves: measurements and where they were taken, from which the report is
// rendered, then or later.
package result

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Results are those of one run.
type Results struct {
	Taken    time.Time         `json:"taken"`
	Took     string            `json:"took"`
	Command  string            `json:"command"`
	Quick    bool              `json:"quick"`
	Partial  bool              `json:"partial,omitempty"` // only some of it was asked for
	Seed     uint64            `json:"seed"`
	Load     float64           `json:"load"` // the machine's load average just before
	Machine  Machine           `json:"machine"`
	Versions map[string]string `json:"versions"`
	Servers  []Server          `json:"servers"`
	Pool     int               `json:"pool"`
	Cells    []Cell            `json:"cells"`
	Profiles []Profile         `json:"profiles"`
	Storms   []Storm           `json:"storms"`
	Notes    []string          `json:"notes"` // what was left out, and why

	// Sections of bench/profile, bench/operations and bench/messages, which are runs of their own.
	Time       string `json:"-"`
	Operations string `json:"-"`
	Messages   string `json:"-"`
}

// Machine is where the run took place.
type Machine struct {
	OS       string `json:"os"`
	Kernel   string `json:"kernel"`
	CPU      string `json:"cpu"`
	Cores    int    `json:"cores"`
	MemoryGB int    `json:"memory_gb"`
}

// Server is a Postgres that took part.
type Server struct {
	Name     string   `json:"name"`
	Version  string   `json:"version"`
	From     string   `json:"from"`
	Settings []string `json:"settings"` // that differ from the defaults, as name=value
	FlushUS  float64  `json:"flush_us"` // how long a COMMIT waits for the disk
}

// Cell is one point of the plan: all its entries were measured in the same rounds.
type Cell struct {
	Name    string  `json:"name"`
	Setting Setting `json:"setting"`
	Unit    string  `json:"unit"` // the entry that is 1.00
	Entries []Entry `json:"entries"`
}

// Setting says what a cell was measured under.
type Setting struct {
	Server   string  `json:"server"`
	RTT      string  `json:"rtt"`   // Loopback or a duration
	Fsync    string  `json:"fsync"` // Undisturbed or how much longer it takes
	Clients  int     `json:"clients"`
	Work     string  `json:"work"`
	Business string  `json:"business"`
	Response int     `json:"response"`
	Share    float64 `json:"share,omitempty"` // of duplicates
}

// Entry is how one contestant fared in a cell.
type Entry struct {
	Name       string  `json:"name"`
	Records    int     `json:"records,omitempty"` // in the table, where that is what the entries of a cell differ in
	Ops        int     `json:"ops"`
	P50        float64 `json:"p50_us"` // of all rounds together
	P99        float64 `json:"p99_us"`
	Rounds     []Round `json:"rounds"`
	Executed   int     `json:"executed"` // effects found in the database
	Requests   int     `json:"requests"` // different keys that were asked for
	Refused    int     `json:"refused,omitempty"`
	Replayed   int     `json:"replayed,omitempty"`
	Error      string  `json:"error,omitempty"`
	Unverified string  `json:"unverified,omitempty"` // what is wrong with the effects
}

// Round is one sample of an entry.
type Round struct {
	Ops       int     `json:"n"`
	P50       float64 `json:"p50_us"`
	PerSecond float64 `json:"per_s"`
	Processor float64 `json:"cpu_us,omitempty"` // that a call takes, of server and client together; 0: nobody has read it
}

// Profile is what one operation of a contestant costs, apart from time.
type Profile struct {
	Name       string     `json:"name"`
	Trips      Trips      `json:"trips"`
	WAL        Pair       `json:"wal_bytes"`
	Allocs     Pair       `json:"allocs"`
	AllocBytes Pair       `json:"alloc_bytes"`
	Storage    float64    `json:"storage_bytes"` // per record, indexes included
	Held       Held       `json:"held"`
	Duplicates Duplicates `json:"duplicates"`
	Error      string     `json:"error,omitempty"`
}

// Pair is a figure of a first run and of a replay.
type Pair struct {
	First  float64 `json:"first"`
	Replay float64 `json:"replay"`
}

// Trips are round trips of an operation, those to Redis included.
type Trips struct {
	Insert    float64 `json:"insert"`
	Realistic float64 `json:"realistic"`
	Replay    float64 `json:"replay"`
}

// Held are connections of the pool that are taken, beyond those that are taken at rest.
type Held struct {
	Running int `json:"running"` // by a first run
	Waiting int `json:"waiting"` // by 20 duplicates of it
}

// Duplicates is the outcome of races of 32 calls with the same key.
type Duplicates struct {
	Races    int `json:"races"`
	Executed int `json:"executed"`
	Refused  int `json:"refused"`
}

// Storm is what 1,000 duplicates of a key in flight do to other keys.
type Storm struct {
	Name     string    `json:"name"`
	Storms   int       `json:"storms"`
	Calm     []float64 `json:"calm_p99_us"` // of the bystanders, window by window
	Stormy   []float64 `json:"storm_p99_us"`
	CalmP99  float64   `json:"calm_all_p99_us"`
	StormP99 float64   `json:"storm_all_p99_us"`
	Settled  float64   `json:"settled_ms"` // until the last duplicate had its answer, the median
	Refused  int       `json:"refused"`
	Executed int       `json:"executed"`
	Error    string    `json:"error,omitempty"`
}

// Read reads the results of an earlier run.
func Read(path string) (*Results, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var r Results
	return &r, json.Unmarshal(text, &r)
}

// ReadSections adds the sections that bench/profile, bench/operations and bench/messages have left beside the results, those that are there.
func (r *Results) ReadSections(path string) error {
	for folder, section := range map[string]*string{"profile": &r.Time, "operations": &r.Operations, "messages": &r.Messages} {
		text, err := os.ReadFile(filepath.Join(filepath.Dir(path), folder, "results.md"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		*section = string(text)
	}
	return nil
}

// Write keeps the results, one entry on a line, so that two runs can be compared.
func (r *Results) Write(path string) error {
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(compact(text), '\n'), 0o644)
}

// Cell returns the cell of a point, nil if it was not measured.
func (r *Results) Cell(point Point) *Cell {
	for i := range r.Cells {
		if r.Cells[i].Name == point.Name() {
			return &r.Cells[i]
		}
	}
	return nil
}

// Profile returns that of a contestant, nil if there is none or it failed.
func (r *Results) Profile(name string) *Profile {
	for i := range r.Profiles {
		if p := &r.Profiles[i]; p.Name == name && p.Error == "" {
			return p
		}
	}
	return nil
}

// Storm returns that of a contestant, nil if there is none or it failed.
func (r *Results) Storm(name string) *Storm {
	for i := range r.Storms {
		if s := &r.Storms[i]; s.Name == name && s.Error == "" {
			return s
		}
	}
	return nil
}

// Entry returns the entry of a name, nil if it did not take part, failed, or did not do what it was asked for.
func (c *Cell) Entry(name string) *Entry {
	if c == nil {
		return nil
	}
	for i := range c.Entries {
		if e := &c.Entries[i]; e.Name == name && e.Error == "" && e.Unverified == "" && len(e.Rounds) > 0 {
			return e
		}
	}
	return nil
}

// WithRecords returns the entry for a table of so many records, nil if there is none or it failed.
func (c *Cell) WithRecords(records int) *Entry {
	if c == nil {
		return nil
	}
	for i := range c.Entries {
		if c.Entries[i].Records == records {
			return c.Entry(c.Entries[i].Name)
		}
	}
	return nil
}
