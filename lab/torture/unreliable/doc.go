// Package unreliable is a server that workers call, on which things go wrong: it is slow, refuses requests, drops them or their answers,
// and has whoever calls killed meanwhile.
package unreliable
