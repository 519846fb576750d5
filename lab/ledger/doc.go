// Package ledger is the bookkeeping of tests that send messages through a broker and break everything on the way: what was said, in
// which order, and what came of it. It also runs the processes that are killed.
package ledger
