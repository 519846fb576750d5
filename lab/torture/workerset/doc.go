// Package workerset supervises the worker processes of a run. It replaces a killed worker at once
// by another process in the same slot, with a history file of its own. Each slot has a proxy in
// front of the server, which outlives the workers.
package workerset
