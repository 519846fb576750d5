// Package letter is what is said of messages in a run: a message and its fate, the lines that workers and the broker write of
// them, and the rows that are in the database when all is over.
package letter
