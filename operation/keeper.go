package operation

// keeper keeps an instance visible.
type keeper interface {
	// keep returns when that is over, or with what keeps it visible from there on. done says that it may end.
	keep(done <-chan struct{}) (next keeper)
}
