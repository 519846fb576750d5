package inbox

import "time"

// WithLimits shortens how long a call waits for locks and COMMITs.
func WithLimits(lockWait, divide, resolve time.Duration) Option {
	return func(s *settings) { s.limits.lockWait, s.limits.divide, s.limits.resolve = lockWait, divide, resolve }
}

// WithCommitLimit shortens how long a call waits for a COMMIT after the end of its context.
func WithCommitLimit(d time.Duration) Option {
	return func(s *settings) { s.limits.txn.Commit = d }
}

// WithTurn shortens how long a message waits whose last attempt has no recorded end.
func WithTurn(d time.Duration) Option {
	return func(s *settings) { s.limits.turn = d }
}

// Arrange returns the groups in which messages are tried, by their positions.
func Arrange(ordered bool, redelivered []bool, keys []string) (groups [][]int) {
	round := make([]*delivery, len(keys))
	for i := range round {
		round[i] = &delivery{Message: Message{Key: keys[i], Deliveries: 1}, positions: []int{i}}
		if redelivered[i] {
			round[i].Deliveries = 2
		}
	}
	for _, group := range arrange(round, ordered) {
		var positions []int
		for _, d := range group {
			positions = append(positions, d.positions[0])
		}
		groups = append(groups, positions)
	}
	return groups
}
