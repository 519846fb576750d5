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

// Unique is what another value takes the place of in each request that is not a repetition.
const Unique = "{{unique}}"

// Request is what is sent again and again.
type Request struct {
	Method string
	Header http.Header
	Body   string
}

// Standard is the request if there is no other.
func Standard() *Request {
	return &Request{Method: http.MethodPost, Header: http.Header{"Content-Type": {"application/json"}}, Body: `{"idem_conform":"` + Unique + `","number":1}`}
}

// ReadRequest reads a request: a method, fields of the header, an empty line and the body. The path is that of the URL.
func ReadRequest(text string) (*Request, error) {
	line, rest, _ := strings.Cut(strings.ReplaceAll(text, "\r\n", "\n"), "\n")
	words := strings.Fields(line)
	if len(words) == 0 || !slices.Contains([]string{http.MethodPost, http.MethodPatch, http.MethodPut, http.MethodDelete}, words[0]) {
		return nil, errors.New("the request begins with its method in a line of its own: POST, PATCH, PUT or DELETE")
	}
	if len(words) > 1 {
		return nil, fmt.Errorf("there is %q behind the method: the path is that of the URL", words[1])
	}
	fields, body, _ := strings.Cut(rest, "\n\n")
	header, err := ReadHeader(fields)
	if err != nil {
		return nil, err
	}
	if header.Get(keyField) != "" {
		return nil, errors.New("the request has a key of its own: leave Idempotency-Key out, the command makes the keys")
	}
	return &Request{Method: words[0], Header: header, Body: strings.TrimSuffix(body, "\n")}, nil
}

// ReadHeader reads fields of a header, one to a line.
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
			return nil, errors.New("a line of the header is no field: write Name: value") // it may be a credential: it is not shown
		}
		header.Add(textproto.TrimString(name), textproto.TrimString(value))
	}
	return header, scan.Err()
}

// hasUnique reports whether another request can be made of this one.
func (r *Request) hasUnique() bool { return strings.Contains(r.Body, Unique) }

func (r *Request) body(unique string) string { return strings.ReplaceAll(r.Body, Unique, unique) }
