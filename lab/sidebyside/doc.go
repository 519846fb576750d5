// Package sidebyside is what the benchmarks share that bring a server of their own and report as text: the server, what it has
// written to its log, the command line, figures and how far they spread, tables, and the machine.
package sidebyside
