// Package workerset keeps the worker processes of a run alive: one that is killed is replaced at once by another process in the
// same slot, with a history file of its own. Every slot has a proxy in front of the server, which outlives its workers.
package workerset
