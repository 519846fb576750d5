package main

import "fmt"

// bar is something that has to be so.
type bar struct {
	what string
	met  bool
	got  string
}

// bars prints them, and reports whether all were met.
func bars(all ...bar) bool {
	every := true
	for _, b := range all {
		verdict := "met   "
		if !b.met {
			verdict, every = "MISSED", false
		}
		fmt.Printf("  %s  %s: %s\n", verdict, b.what, b.got)
	}
	return every
}
