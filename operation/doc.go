// Package operation makes work of several steps safe to retry, some of which call other systems: reserve, charge a card,
// confirm. It gives such work the contract of package idem: one key, one outcome, whatever crashes.
package operation
