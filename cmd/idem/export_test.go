package main

// Run executes the command line of the process.
var Run = run
