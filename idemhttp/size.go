package idemhttp

import (
	"encoding/json"

	"github.com/idem-go/idem"
)

// The size of an answer is what idem.Do counts: the body, and the recorded header as JSON. To know it exactly the header has
// to be encoded, so that is done only for an answer that may be too large.

// sniffedBound is more than a Content-Type that http.DetectContentType makes out takes in the header.
const sniffedBound = 64

// headerBound is not below the size of the header that is recorded.
func (r *recorder) headerBound() int {
	bound := headerSize(r.recorded, func(s string) int { return 6*len(s) + 2 })
	if r.sniffs {
		bound += sniffedBound
	}
	return bound
}

// checkSize refuses the answer if it is too large as it is.
func (r *recorder) checkSize() error {
	if r.err != nil || len(r.body)+r.bound <= r.limit {
		return r.err
	}
	r.sniff()
	header := headerSize(r.recorded, func(s string) int {
		encoded, err := json.Marshal(s)
		if err != nil {
			panic(err) // no string can fail
		}
		return len(encoded)
	})
	if size := len(r.body) + header; size > r.limit {
		r.err = &idem.ResponseTooLargeError{Size: size, Limit: r.limit}
	}
	return r.err
}

// headerSize is how many bytes a header takes as JSON, if a string takes as many as size says.
func headerSize(header map[string][]string, size func(string) int) int {
	if len(header) == 0 {
		return 0 // none is stored
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
