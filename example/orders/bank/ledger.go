package bank

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
)

// ledger is a file with one line for each request. Each line is synced to disk before the request
// is answered. The ledger survives a crash of the bank and is independent of the shop's database.
type ledger struct {
	mu      sync.Mutex
	file    *os.File
	size    int64
	entries []*Entry
	byKey   map[string]*Entry
}

// line is a request in the file. The first line of a key creates the entry. Later lines of the key
// only count another request.
type line struct {
	Key      string `json:"key"`
	ID       string `json:"id"`
	Declined bool   `json:"declined"`
	Charge   Charge `json:"charge"`
}

var errOtherCharge = errors.New("the key belongs to another charge")

func openLedger(path string) (*ledger, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	l := &ledger{file: file, byKey: map[string]*Entry{}}
	if err := l.load(); err != nil {
		file.Close()
		return nil, fmt.Errorf("the ledger %s: %w", path, err)
	}
	return l, nil
}

// load reads the file. A last line without a newline is the rest of a write that a crash has
// interrupted. Its request was never answered, so the next line overwrites it.
func (l *ledger) load() error {
	text, err := os.ReadFile(l.file.Name())
	if err != nil {
		return err
	}
	l.size = int64(bytes.LastIndexByte(text, '\n') + 1)
	for text := range bytes.Lines(text[:l.size]) {
		var entered line
		if err := json.Unmarshal(text, &entered); err != nil {
			return err
		}
		l.count(&entered)
	}
	return nil
}

// enter records a request and returns the entry of its key. first says that the request has created
// the entry. enter returns errOtherCharge if the key belongs to another charge.
func (l *ledger) enter(key string, c Charge) (e Entry, first bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	known := l.byKey[key]
	if known != nil && known.Charge != c {
		return Entry{}, false, errOtherCharge
	}
	entered := &line{Key: key, ID: "ch-" + rand.Text()[:10], Declined: decide(c), Charge: c}
	if known != nil {
		entered.ID, entered.Declined = known.ID, known.Declined
	}
	if err := l.append(entered); err != nil {
		return Entry{}, false, err
	}
	l.count(entered)
	return *l.byKey[key], known == nil, nil
}

// append writes a line and syncs the file. After an error it removes what was written.
func (l *ledger) append(entered *line) error {
	text, err := json.Marshal(entered)
	if err != nil {
		return err
	}
	text = append(text, '\n')
	_, err = l.file.WriteAt(text, l.size)
	if err == nil {
		err = l.file.Sync()
	}
	if err != nil {
		return errors.Join(err, l.file.Truncate(l.size))
	}
	l.size += int64(len(text))
	return nil
}

// count adds a line to the entries in memory.
func (l *ledger) count(entered *line) {
	e := l.byKey[entered.Key]
	if e == nil {
		e = &Entry{ID: entered.ID, Declined: entered.Declined, Charge: entered.Charge}
		l.byKey[entered.Key] = e
		l.entries = append(l.entries, e)
	}
	e.Asked++
}

// of returns the entries of a customer, newest first. An empty customer selects all entries.
func (l *ledger) of(customer string) []Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	found := []Entry{}
	for _, e := range slices.Backward(l.entries) {
		if customer == "" || e.Customer == customer {
			found = append(found, *e)
		}
	}
	return found
}
