// Package mutant tests the torture: each [Mutant] is the library with one promise broken on purpose, by an edit of its
// source that exists only while it is built. A run that does not find fault with a mutant is a defect of the torture.
//
// There is nothing of this in the library: an edit is laid over its files by go build -overlay. It names the text that it
// replaces, and when that is not there exactly once, the mutant no longer applies and has to be looked at.
package mutant
