package idemhttp

import (
	"encoding/json"

	"github.com/idem-go/idem"
)

// sniffedBound is an upper bound of the size of a detected Content-Type in the encoded header.
const sniffedBound = 64

// headerBound returns an upper bound of the size of the recorded header.
func (r *recorder) headerBound() int {
	bound := headerSize(r.recorded, func(s string) int { return 6*len(s) + 2 })
	if r.sniffs {
		bound += sniffedBound
	}
	return bound
}

// checkSize returns an error if the answer is too large. The size is what idem.Do counts: the body,
// and the recorded header as JSON. The header is encoded only if the upper bound exceeds the limit.
func (r *recorder) checkSize() error {
	if r.err != nil || len(r.body)+r.bound <= r.limit {
		return r.err
	}
	r.sniff()
	header := headerSize(r.recorded, func(s string) int {
		encoded, err := json.Marshal(s)
		if err != nil {
			panic(err) // cannot happen: every string can be encoded
		}
		return len(encoded)
	})
	if size := len(r.body) + header; size > r.limit {
		r.err = &idem.ResponseTooLargeError{Size: size, Limit: r.limit}
	}
	return r.err
}

// headerSize returns the size of a header as JSON, if size returns the size of each string.
func headerSize(header map[string][]string, size func(string) int) int {
	if len(header) == 0 {
		return 0 // idem.Do stores no empty header
	}
	n := len("{}") + len(header) - 1
	for name, values := range header {
		n += size(name) + len(":[]") + max(len(values)-1, 0)
		for _, value := range values {
			n += size(value)
		}
	}
	return n
}
