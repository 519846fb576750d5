package main

import "fmt"

// bar is a requirement and whether the measurement met it.
type bar struct {
	what string
	met  bool
	got  string
}

// bars prints the requirements and reports whether all are met.
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
