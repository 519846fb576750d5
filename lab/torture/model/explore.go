// Package model is a specification of the protocol of idem, with the program that explores it.
//
// keys.go specifies how calls share a key: claim, commit, expire, take over, resolve. operations.go
// specifies the epochs of operations. Both read like TLA+: a state is a tuple of variables, Next is
// a disjunction of guarded actions, Broken lists the invariants. The environment is Postgres at
// READ COMMITTED: a statement is one action that sees what is committed when it begins, and a
// transaction locks the row that it writes until it ends.
//
// Explore visits every reachable state. Packages check and audit decide whether the events that the
// torture recorded fit a behavior of the specification, which is a sequence of its steps.
package model

import "hash/maphash"

// Limits of the exploration: callers or processes, keys or operations, crashes.
const Actors, Objects, Crashes = 3, 2, 2

// Action is the name of an action.
type Action string

// Step is an action with its actor. Actor is the index of the call or process. If a key or an
// operation acts, it is the complement (^) of its index.
type Step struct {
	Action Action
	Actor  int
}

// View encodes what distinguishes states. States that differ only in the order of actors have equal
// Views.
type View [8]uint64

// Spec is a specification whose states are of type S.
type Spec[S any] interface {
	Init() S
	Next(s S, do func(Step, S))            // calls do for each step that is enabled in s
	Broken(from S, step Step, to S) string // the property that the step breaks, or ""
	View(s S) View
}

// Node is a state with the step that led to it first.
type Node[S any] struct {
	Step   Step
	State  S
	parent int32
}

// Explore visits the reachable states breadth first, until a step breaks a property. It returns the
// property and a shortest path to the violation, or "" and a path to a most distant state. Like the
// model checker TLC, it recognizes a state by a fingerprint of 64 bits.
func Explore[S any](spec Spec[S]) (broken string, path []Node[S], states, steps int) {
	seed, seen := maphash.MakeSeed(), map[uint64]bool{}
	nodes := []Node[S]{{State: spec.Init(), parent: -1}}
	for at := 0; at < len(nodes) && broken == ""; at++ {
		from := nodes[at].State
		spec.Next(from, func(step Step, to S) {
			if steps++; broken != "" {
				return
			}
			mark := maphash.Comparable(seed, spec.View(to))
			if broken = spec.Broken(from, step, to); broken != "" || !seen[mark] {
				seen[mark] = true
				nodes = append(nodes, Node[S]{step, to, int32(at)})
			}
		})
	}
	for at := len(nodes) - 1; at >= 0; at = int(nodes[at].parent) {
		path = append([]Node[S]{nodes[at]}, path...)
	}
	return broken, path, len(nodes), steps
}

type property struct {
	name   string
	broken bool
}

// first returns the name of the first property that is broken, or "".
func first(properties ...property) string {
	for _, p := range properties {
		if p.broken {
			return p.name
		}
	}
	return ""
}

// word packs numbers below 16, and flags, into one integer.
func word(flags []bool, numbers ...uint8) (w uint64) {
	for _, n := range numbers {
		w = w<<4 | uint64(n)
	}
	for _, f := range flags {
		if w <<= 1; f {
			w++
		}
	}
	return w
}
