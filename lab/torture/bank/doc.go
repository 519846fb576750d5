// Package bank is another system, which operations call: an HTTP server that keeps books of its own, in another process than
// the workers. It knows a key again, or can be asked for the outcome of one, or neither, as the safety of the call has it. It is
// slow, refuses, loses its answer, and has whoever calls killed before and after it books.
package bank
