package idemclient

import (
	"bytes"
	"encoding/json"
	"io"
	"mime"
	"net/http"
)

// problem is the part of an RFC 9457 document that the Transport uses.
type problem struct {
	Retryable *bool `json:"retryable"`
}

const maxProblem = 64 << 10

// readProblem returns the problem document of a response, or an empty problem. The whole body of
// the response can still be read afterwards.
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

// failing is a reader that returns the error at which a body broke off.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
