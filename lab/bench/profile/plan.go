package main

// plan is how much is measured.
type plan struct {
	seed          uint64
	calls, rounds int   // of a timing; timings of each course
	sampled       int   // calls under perf
	counted       int   // calls under valgrind
	sizes         []int // records in the table
}

func planOf(quick bool, seed uint64) plan {
	if quick {
		return plan{seed: seed, calls: 100, rounds: 1, sampled: 300, counted: 20, sizes: []int{100, 1000}}
	}
	return plan{seed: seed, calls: 500, rounds: 25, sampled: 20_000, counted: 600, sizes: []int{10_000, 1_000_000, 10_000_000}}
}
