package idemclient

import (
	"bytes"
	"encoding/json"
	"io"
	"mime"
	"net/http"
)

// problem is as much of an RFC 9457 document as matters here.
type problem struct {
	Retryable *bool `json:"retryable"`
}

const maxProblem = 64 << 10

// readProblem reads the problem that a response describes, if it does, and leaves its body as it was.
func readProblem(resp *http.Response) problem {
	mediaType, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if mediaType != "application/problem+json" || resp.Body == nil {
		return problem{}
	}
	head, err := io.ReadAll(io.LimitReader(resp.Body, maxProblem))
	var rest io.Reader = resp.Body
	if err != nil {
		rest = failing{err}
	}
	resp.Body = joined{io.MultiReader(bytes.NewReader(head), rest), resp.Body}
	var p problem
	if json.Unmarshal(head, &p) != nil {
		return problem{}
	}
	return p
}

// failing is where a body broke.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
