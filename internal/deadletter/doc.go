// Package deadletter keeps what could not be published or handled, until a person decides: what happens to an error that is
// written down, and how dead letters are listed, read and dropped. Those of both sides are in one table.
package deadletter
