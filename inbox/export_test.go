package inbox

import "time"

// WithLimits shortens what a call waits on its own account.
func WithLimits(patience, search, resolve time.Duration) Option {
	return func(s *settings) { s.limits.patience, s.limits.search, s.limits.resolve = patience, search, resolve }
}

// WithCommitLimit shortens how long a call waits for a COMMIT after the end of its context.
func WithCommitLimit(d time.Duration) Option {
	return func(s *settings) { s.limits.txn.Commit = d }
}

// Arrange returns the groups in which messages are tried, by their places.
func Arrange(ordered bool, redelivered []bool, keys []string) (groups [][]int) {
	round := make([]*delivery, len(keys))
	for i := range round {
		round[i] = &delivery{Message: Message{Key: keys[i], Deliveries: 1}, twins: []int{i}}
		if redelivered[i] {
			round[i].Deliveries = 2
		}
	}
	for _, group := range arrange(round, ordered) {
		var places []int
		for _, d := range group {
			places = append(places, d.twins[0])
		}
		groups = append(groups, places)
	}
	return groups
}

// WithTurn shortens how long a message waits whose last attempt has no recorded end.
func WithTurn(d time.Duration) Option {
	return func(s *settings) { s.limits.turn = d }
}
