package command

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/cmd/idem/internal/page"
	"github.com/idem-go/idem/idemhttp"
)

// request has the flags for a request whose hash is compared with the recorded one.
type request struct {
	Request     string   `placeholder:"FILE" help:"File with the body of the request. -: standard input."`
	Without     []string `placeholder:"POINTER" sep:"none" help:"JSON pointer to a value that the hash leaves out, as in idem.Without. May be repeated."`
	Only        []string `placeholder:"POINTER" sep:"none" help:"JSON pointer to a value that the hash covers, as in idem.Only. May be repeated."`
	Method      string   `placeholder:"METHOD" help:"Method of the request, for the fingerprint of idemhttp."`
	Target      string   `placeholder:"PATH" help:"Path and query as in the request line, for the fingerprint of idemhttp."`
	ContentType string   `default:"application/json" placeholder:"TYPE" help:"Media type, for the fingerprint of idemhttp. Default: ${default}."`
	Hash        string   `placeholder:"HEX" help:"The hash, for a program with a Fingerprint of its own."`
}

// requestHash is the hash of the request in one of the ways that the library offers.
type requestHash struct {
	Way  string `json:"way"`
	Hash string `json:"hash,omitempty"`
	Err  string `json:"error,omitempty"` // why there is no hash
	Same *bool  `json:"same"`            // equal to the recorded hash; nil if there is none
}

// hashes returns the hashes of the request: the hash itself if --hash was given, the body as
// HashJSON and HashBytes hash it, and the fingerprint of idemhttp if --method was given. The command
// cannot know which of them the program uses. If one matches, the request is the recorded one.
func (r *request) hashes() ([]*requestHash, error) {
	var all []*requestHash
	if r.Hash != "" {
		sum, err := hex.DecodeString(r.Hash)
		if err != nil || len(sum) != len(idem.Hash{}) {
			return nil, usage("--hash needs 64 hexadecimal digits")
		}
		all = append(all, &requestHash{Way: "--hash", Hash: hex.EncodeToString(sum)})
	}
	if r.Request == "" {
		if len(r.Without)+len(r.Only) > 0 || r.Method != "" || r.Target != "" {
			return nil, usage("--without, --only, --method and --target need --request, the body that is hashed")
		}
		return all, nil
	}
	if (r.Method == "") != (r.Target == "") {
		return nil, usage("--method and --target need each other")
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
	all = append(all, newRequestHash("HashJSON", sum, err), newRequestHash("HashBytes", idem.HashBytes(body), nil))
	if r.Method != "" {
		sum, err := r.fingerprint(body)
		all = append(all, newRequestHash("idemhttp", sum, err))
	}
	return all, nil
}

func newRequestHash(way string, sum idem.Hash, err error) *requestHash {
	if err != nil {
		return &requestHash{Way: way, Err: err.Error()}
	}
	return &requestHash{Way: way, Hash: sum.String()}
}

// fingerprint returns the hash that idemhttp computes for the request.
func (r *request) fingerprint(body []byte) (idem.Hash, error) {
	req, err := http.NewRequest(r.Method, r.Target, http.NoBody)
	if err != nil {
		return idem.Hash{}, err
	}
	req.RequestURI = r.Target
	req.Header.Set("Content-Type", r.ContentType)
	return idemhttp.FingerprintWithout(r.Without...)(req, body)
}

// maxRequest is the maximum size of a request body that is read.
const maxRequest = 64 << 20

// read returns the body of the request. A larger body than any that a program would hash is refused,
// and not read into memory.
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
	body, err := io.ReadAll(io.LimitReader(file, maxRequest+1))
	if err == nil && len(body) > maxRequest {
		err = fmt.Errorf("%s: more than %s", r.Request, page.Bytes(maxRequest))
	}
	return body, err
}

// compare sets Same in each hash that could be computed.
func compare(hashes []*requestHash, recorded string) {
	for _, h := range hashes {
		if h.Hash != "" {
			same := h.Hash == recorded
			h.Same = &same
		}
	}
}

func anySame(hashes []*requestHash) bool {
	return slices.ContainsFunc(hashes, func(h *requestHash) bool { return h.Same != nil && *h.Same })
}

func (h *requestHash) text(p *page.Page) string {
	switch {
	case h.Err != "":
		return p.Dim("none: " + page.Safe(h.Err))
	case h.Same == nil:
		return h.Hash
	case *h.Same:
		return h.Hash + "  " + p.Green("as recorded")
	}
	return h.Hash + "  " + p.Red("different")
}

// invalidName returns the explanation for a scope or key that the library rejects. It returns nil
// if err is another error.
func invalidName(err error) *explanation {
	for name, kind := range map[string]error{"ErrInvalidKey": idem.ErrInvalidKey, "ErrInvalidScope": idem.ErrInvalidScope} {
		if errors.Is(err, kind) {
			return &explanation{Verdict: refused, Error: name, Reason: err.Error(), Hint: "the call fails before it reads the database"}
		}
	}
	return nil
}
