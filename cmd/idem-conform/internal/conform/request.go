package conform

import (
	"bufio"
	"errors"
	"fmt"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
)

// Unique is a placeholder in the body of a Request. A new value replaces it in each request that
// must differ from the requests before.
const Unique = "{{unique}}"

// Request is the request that a run sends.
type Request struct {
	Method string
	Header http.Header
	Body   string
}

// Standard returns the request that a run sends if the user gave no request.
func Standard() *Request {
	return &Request{Method: http.MethodPost, Header: http.Header{"Content-Type": {"application/json"}}, Body: `{"idem_conform":"` + Unique + `","number":1}`}
}

// ReadRequest parses a request: the method in a line, header fields, an empty line, and the body.
// The text has no path. ReadRequest fails if the request has an Idempotency-Key of its own.
func ReadRequest(text string) (*Request, error) {
	line, rest, _ := strings.Cut(strings.ReplaceAll(text, "\r\n", "\n"), "\n")
	words := strings.Fields(line)
	if len(words) == 0 || !slices.Contains([]string{http.MethodPost, http.MethodPatch, http.MethodPut, http.MethodDelete}, words[0]) {
		return nil, errors.New("the first line must be the method: POST, PATCH, PUT or DELETE")
	}
	if len(words) > 1 {
		return nil, fmt.Errorf("%q follows the method: the path belongs to the URL", words[1])
	}
	fields, body, _ := strings.Cut(rest, "\n\n")
	header, err := ReadHeader(fields)
	if err != nil {
		return nil, err
	}
	if header.Get(keyField) != "" {
		return nil, errors.New("the request has an Idempotency-Key: remove it, because the program generates the keys")
	}
	return &Request{Method: words[0], Header: header, Body: strings.TrimSuffix(body, "\n")}, nil
}

// ReadHeader parses header fields, one per line. It skips empty lines and lines that begin with #.
func ReadHeader(text string) (http.Header, error) {
	header := http.Header{}
	scan := bufio.NewScanner(strings.NewReader(text))
	for scan.Scan() {
		line := strings.TrimSpace(scan.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, value, ok := strings.Cut(line, ":")
		if !ok || name == "" || strings.ContainsAny(name, " \t") {
			// The line may be a credential, so the error does not show it.
			return nil, errors.New("a header line is not a field: write Name: value")
		}
		header.Add(textproto.TrimString(name), textproto.TrimString(value))
	}
	return header, scan.Err()
}

// hasUnique reports whether the body has the placeholder, so that requests can be made to differ.
func (r *Request) hasUnique() bool { return strings.Contains(r.Body, Unique) }

func (r *Request) body(unique string) string { return strings.ReplaceAll(r.Body, Unique, unique) }
