// Package bank is the external system that operations call. It is an HTTP server with books of its
// own, in another process than the workers. According to the safety of a call it recognizes the
// key, answers for the outcome of a key, or does neither. It is slow, refuses requests, loses its
// answers, and has the calling process killed before and after it books.
package bank
