//go:build race

package pgtest

// raced tells whether the race detector is built in.
const raced = true
