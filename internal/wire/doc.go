// Package wire tells when something arrives on the socket of a connection, and reads nothing of it: a caller that waits for an answer
// can stop waiting, and leave it to another goroutine.
package wire
