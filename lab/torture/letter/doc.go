// Package letter defines the messages of a run and their fates, the events that workers and the
// broker log about them, and the rows of the database at the end.
package letter
