package idemclient

import "time"

// hiddenKey holds a key where no printer finds it. Of a function fmt prints the address, whatever the verb; it follows a
// pointer under those that do not fit.
type hiddenKey struct{ reveal func() callKey }

// key is the whole key and when it was made, or nothing if there is none.
func (h *hiddenKey) key() (string, time.Time) {
	if h == nil {
		return "", time.Time{}
	}
	k := h.reveal()
	return k.text, k.made
}
