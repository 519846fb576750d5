// Package journal defines what is written down during a run of operations: the events of the
// workers, the books of the bank, and the rows of the database. Package audit reads them. The
// package also derives the plan of an operation from its key. It shares no code with the library.
package journal
