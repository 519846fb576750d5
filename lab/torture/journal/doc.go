// Package journal is what is written down of a run of operations, by the workers, by the bank and of the database: from it
// package audit decides whether every promise was kept. It shares no code with the library.
package journal
