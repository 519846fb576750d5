package idemhttp

import (
	"encoding/json"

	"github.com/idem-go/idem"
)

// sniffedBound is an upper bound of the bytes that a detected Content-Type adds to the header as
// JSON.
const sniffedBound = 64

// headerBound returns an upper bound of the size of the recorded header as JSON.
func (r *recorder) headerBound() int {
	bound := headerSize(r.recorded, func(s string) int { return 6*len(s) + 2 })
	if r.sniffs {
		bound += sniffedBound
	}
	return bound
}

// checkSize returns an error if the answer is too large. It computes the size as idem.Do does: the
// body plus the recorded header as JSON. To save time, it encodes the header only if an upper bound
// of the size exceeds the limit.
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

// headerSize returns the size of a header as JSON. It calls the function size for the size of each
// string as JSON.
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
