// Package ledger helps tests that send messages through a broker. A Ledger records the effects of
// messages. Chaos kills processes and cuts connections on the way, and reports lost, repeated and
// reordered effects.
package ledger
