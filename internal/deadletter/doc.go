// Package deadletter keeps what nobody could publish or handle, until a person decides: what becomes of an error that is
// written down, and how dead letters are listed, read and dropped. Those of both sides are in one table.
package deadletter
