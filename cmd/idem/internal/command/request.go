package command

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/cmd/idem/internal/page"
	"github.com/idem-go/idem/idemhttp"
)

// request holds the flags for a request whose hash explain compares with the record.
type request struct {
	Request     string   `placeholder:"FILE" group:"request" help:"Body of the request. -: standard input."`
	Without     []string `placeholder:"POINTER" sep:"none" group:"request" help:"JSON pointer to a value that does not matter, as idem.Without takes it. May be repeated."`
	Only        []string `placeholder:"POINTER" sep:"none" group:"request" help:"JSON pointer to what alone matters, as idem.Only takes it. May be repeated."`
	Method      string   `placeholder:"METHOD" group:"request" help:"Method, for the fingerprint of idemhttp."`
	Target      string   `placeholder:"PATH" group:"request" help:"Path and query as in the request line, for the fingerprint of idemhttp."`
	ContentType string   `default:"application/json" placeholder:"TYPE" group:"request" help:"Media type, for the fingerprint of idemhttp. Default: ${default}."`
	Hash        string   `placeholder:"HEX" group:"request" help:"The hash itself, if the program makes it in a way of its own."`
}

// hashed is the hash of a request by one method.
type hashed struct {
	Way  string `json:"way"`
	Hash string `json:"hash,omitempty"`
	Err  string `json:"error,omitempty"` // why there is no hash
	Same *bool  `json:"same"`            // whether the record has this hash; nil if there is no record
}

// hashes returns the hash of the request by every method that applies.
func (r *request) hashes() ([]*hashed, error) {
	var all []*hashed
	if r.Hash != "" {
		sum, err := hex.DecodeString(r.Hash)
		if err != nil || len(sum) != len(idem.Hash{}) {
			return nil, usage("--hash wants 64 hexadecimal digits")
		}
		all = append(all, &hashed{Way: "--hash", Hash: hex.EncodeToString(sum)})
	}
	if r.Request == "" {
		if len(r.Without)+len(r.Only) > 0 || r.Method != "" || r.Target != "" {
			return nil, usage("--without, --only, --method and --target say how a request is hashed: give its body with --request")
		}
		return all, nil
	}
	if (r.Method == "") != (r.Target == "") {
		return nil, usage("--method and --target belong together")
	}
	body, err := r.read()
	if err != nil {
		return nil, err
	}
	var options []idem.HashOption
	if len(r.Without) > 0 {
		options = append(options, idem.Without(r.Without...))
	}
	if len(r.Only) > 0 {
		options = append(options, idem.Only(r.Only...))
	}
	sum, err := idem.HashJSON(body, options...)
	if errors.Is(err, idem.ErrInvalidPointer) {
		return nil, usage("%v", err)
	}
	all = append(all, newHashed("HashJSON", sum, err), newHashed("HashBytes", idem.HashBytes(body), nil))
	if r.Method != "" {
		sum, err := r.fingerprint(body)
		all = append(all, newHashed("idemhttp", sum, err))
	}
	return all, nil
}

func newHashed(way string, sum idem.Hash, err error) *hashed {
	if err != nil {
		return &hashed{Way: way, Err: err.Error()}
	}
	return &hashed{Way: way, Hash: sum.String()}
}

// fingerprint returns the hash that idemhttp computes.
func (r *request) fingerprint(body []byte) (idem.Hash, error) {
	req, err := http.NewRequest(r.Method, r.Target, http.NoBody)
	if err != nil {
		return idem.Hash{}, err
	}
	req.RequestURI = r.Target
	req.Header.Set("Content-Type", r.ContentType)
	return idemhttp.FingerprintWithout(r.Without...)(req, body)
}

// maxRequest is the maximum size of a body. Larger bodies have no hash in idemhttp either.
const maxRequest = 64 << 20

// read returns the body from the file or from standard input. It fails if the body is larger than
// maxRequest.
func (r *request) read() ([]byte, error) {
	file := os.Stdin
	if r.Request != "-" {
		opened, err := os.Open(r.Request)
		if err != nil {
			return nil, err
		}
		defer opened.Close()
		file = opened
	}
	var body bytes.Buffer
	if _, err := io.Copy(&body, io.LimitReader(file, maxRequest+1)); err != nil {
		return nil, err
	}
	if body.Len() > maxRequest {
		return nil, fmt.Errorf("%s: more than %s", r.Request, page.Bytes(maxRequest))
	}
	return body.Bytes(), nil
}

// compare sets Same of each hash.
func compare(hashes []*hashed, recorded []byte) {
	want := hex.EncodeToString(recorded)
	for _, h := range hashes {
		if h.Hash != "" {
			same := h.Hash == want
			h.Same = &same
		}
	}
}

func anySame(hashes []*hashed) bool {
	for _, h := range hashes {
		if h.Same != nil && *h.Same {
			return true
		}
	}
	return false
}

func (h *hashed) outcome(p *page.Page) string {
	switch {
	case h.Err != "":
		return p.Dim("none: " + page.Safe(h.Err))
	case h.Same == nil:
		return h.Hash
	case *h.Same:
		return h.Hash + "  " + p.Green("the same as recorded")
	}
	return h.Hash + "  " + p.Red("another")
}

// invalidName returns the explanation for an invalid key or scope, or nil if err is another error.
func invalidName(err error) *explanation {
	for name, kind := range map[string]error{"ErrInvalidKey": idem.ErrInvalidKey, "ErrInvalidScope": idem.ErrInvalidScope} {
		if errors.Is(err, kind) {
			return &explanation{Verdict: refused, Error: name, Reason: err.Error(), Hint: "the database is not even asked"}
		}
	}
	return nil
}
