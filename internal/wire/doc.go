// Package wire tells when something arrives on the socket of a connection, and reads nothing of it: whoever waits for an answer
// can stop waiting, and leave it to somebody else.
package wire
