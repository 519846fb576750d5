package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"time"

	"github.com/idem-go/idem/example/orders/bank"
)

// charges returns the entries of the bank's ledger, newest first. An entry is a charge or a
// declined card.
func (s *stage) charges(ctx context.Context) (entries []bank.Entry, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.bank.URL+"/charges", nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	return entries, json.NewDecoder(response.Body).Decode(&entries)
}

// latestCharge waits until the ledger has more than count entries, and returns the newest entry.
func (s *stage) latestCharge(ctx context.Context, count int) (bank.Entry, error) {
	for {
		entries, err := s.charges(ctx)
		switch {
		case err != nil:
			return bank.Entry{}, err
		case len(entries) > count:
			return entries[0], nil
		}
		select {
		case <-ctx.Done():
			return bank.Entry{}, fmt.Errorf("the bank was not asked: %w", ctx.Err())
		case <-time.After(2 * time.Millisecond):
		}
	}
}
