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

// ledger is a file with a line for each request, on disk before the request is answered. It outlives the bank's process, and
// shares nothing with the database of the shop.
type ledger struct {
	mu      sync.Mutex
	file    *os.File
	size    int64
	entries []*Entry
	byKey   map[string]*Entry
}

// line is a request. The first line of a key has made the entry, and every other one has only asked for it again.
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

// load reads what is there. A last line without an end was never answered: the next one takes its place.
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

// enter returns the entry of a key, and makes it if there is none.
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

// append returns when the line is on disk, or nothing of it is.
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

func (l *ledger) count(entered *line) {
	e := l.byKey[entered.Key]
	if e == nil {
		e = &Entry{ID: entered.ID, Declined: entered.Declined, Charge: entered.Charge}
		l.byKey[entered.Key] = e
		l.entries = append(l.entries, e)
	}
	e.Asked++
}

// of returns the entries of a customer, or of all of them if it is empty; the latest first.
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
