// Package scene injects faults into a small fleet on this machine while clients place orders, and
// then checks the books. `make fleet` plays its scenes, and so does the leg "fleet" of the torture.
package scene
