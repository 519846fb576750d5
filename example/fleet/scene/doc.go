// Package scene breaks a small fleet on this machine while clients order, and counts: `make fleet` and the torture's leg fleet play its scenes.
package scene
