package command

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/cmd/idem/internal/page"
	"github.com/idem-go/idem/cmd/idem/internal/record"
	"github.com/idem-go/idem/idemhttp"
	"github.com/idem-go/idem/internal/db"
)

type explainCommand struct {
	recordArgs
	request
}

// The verdicts of idem explain: what the next call with the key would get.
const (
	executes = "executes" // the function runs
	replays  = "replays"  // the call returns the stored response
	refused  = "refused"  // the call returns an error, and will do so until the record changes
	waits    = "waits"    // the call waits for the execution that holds the key
)

// Run predicts the next call with the key.
//
// It first calls idem.Lookup, which sees the key as a call does: it detects an uncommitted
// transaction that holds the key, and rejects an invalid scope or key. Then Run reads the facts
// that explain the state: the session that holds the key, the record and the operation.
func (c *explainCommand) Run(s *session) error {
	if err := c.resolve(s); err != nil {
		return err
	}
	hashes, err := c.hashes(s.Stdin)
	if err != nil {
		return err
	}
	pool, err := s.connected()
	if err != nil {
		return err
	}
	ctx, cancel := s.withTimeout()
	defer cancel()
	entry, err := idem.Lookup(ctx, pool, c.Scope, c.Key)
	if invalid := invalidName(err); invalid != nil {
		return s.show(invalid, invalid.text)
	}
	if err != nil {
		return s.timedOut(ctx, err)
	}
	holder, err := queryTx(s, func(ctx context.Context, tx pgx.Tx) (*record.Holder, error) {
		return record.HolderOf(ctx, tx, db.LockOf(c.Scope, c.Key))
	})
	if err != nil {
		return err
	}
	found, operation, err := c.find(s)
	if err != nil {
		return err
	}
	e := explain(found, entry, hashes, operation)
	if e.Verdict == waits && holder != nil {
		e.Holder = holder
	}
	if found == nil && entry.State == idem.StateUnused {
		e.Hint += scopeHint(c.Scope)
	}
	return s.show(e, e.text)
}

// explanation is the JSON document of idem explain. The text for a person is made from it.
type explanation struct {
	Verdict string         `json:"verdict"` // executes, replays, refused or waits
	Error   string         `json:"error,omitempty"`
	Reason  string         `json:"reason"`
	Hint    string         `json:"hint,omitempty"`
	Hashes  []*requestHash `json:"request_hashes,omitempty"`
	Record  *record.Record `json:"record,omitempty"`
	Holder  *record.Holder `json:"held_by,omitempty"` // the session whose transaction holds the key
}

// explain decides the verdict. It checks the cases in the order in which a call checks them.
//
// First, an uncommitted transaction may hold the key. Lookup then reports the state processing
// without an execution id, because the row is not visible. Next, if the record is missing or
// expired, the call executes. For a live record the hash is compared first, and then its state is
// considered.
func explain(r *record.Record, entry idem.Entry, hashes []*requestHash, operation *record.Operation) *explanation {
	e := &explanation{Hashes: hashes, Record: r}
	if r != nil {
		abridge(&r.Key, false)
		compare(hashes, r.Hash)
	}
	live := r != nil && !r.Expired
	switch {
	case !live && entry.State == idem.StateProcessing && entry.ExecutionID == "":
		e.Verdict, e.Error = waits, "ErrInProgress"
		e.Reason = "a transaction holds the key" + since(entry)
		e.Hint = "the call waits up to WithWait (5 s by default) and then gets ErrInProgress; it takes over if that transaction fails"
	case r == nil:
		e.Verdict, e.Reason = executes, "there is no record of this key"
		e.Hint = "if you expect a record: is this the scope that the program uses, was the record purged, or was the transaction rolled back?"
	case !live:
		e.Verdict, e.Reason = executes, "the record expired "+page.Relative(r.ExpiresAt, r.Now)+", so the key is new"
		e.Hint = "callers that retry for longer need a longer TTL: WithTTL"
	case len(hashes) > 0 && !anySame(hashes):
		e.Verdict, e.Error, e.Reason = refused, "ErrMismatch", "the hash of the request differs from the recorded hash"
		e.Hint = "another request needs another key; if it is the same request: does the program hash it in another way, " +
			"or does a value differ in every attempt? Try --without"
	case r.State == record.Running:
		e.explainOperation(operation)
	case r.State == record.Processing:
		e.Verdict, e.Error, e.Reason = refused, "ErrTxEnded", "an earlier fn ended its own transaction, and committed a part of its effect without a response"
		e.Hint = "check that effect, then: idem evict; otherwise the key is free when the record expires"
	default:
		e.replay(r)
	}
	return e
}

// explainOperation sets the verdict for a key that an operation holds. o is nil if the operation
// ended or was purged meanwhile.
func (e *explanation) explainOperation(o *record.Operation) {
	switch {
	case o == nil:
		e.Verdict, e.Error, e.Reason = waits, "ErrInProgress", "an operation held the key a moment ago"
		e.Hint = "run the command again"
	case o.State == record.Parked:
		e.Verdict, e.Error = refused, "operation.ErrParked"
		e.Reason = "operation " + o.ID + " (" + page.Safe(o.Name) + ") is parked at step " + page.Safe(o.Step) + ": " +
			page.Safe(o.Reason) + ": " + page.Safe(o.ReasonText)
		e.Hint = "see idem operation show " + o.ID + "; then: idem operation retry, resolve or cancel"
	default:
		e.Verdict, e.Error = waits, "ErrInProgress"
		e.Reason = "operation " + o.ID + " (" + page.Safe(o.Name) + ") is in progress, at step " + page.Safe(o.Step) + " since " + page.Time(o.Since)
		if !o.Attended {
			e.Reason += "; no process executes it"
			if last := lastErrorOf(o); last != "" {
				e.Reason += "; last error: " + last
			}
			e.Hint = "a Worker that has its definition, or this call, resumes it; it is due at " + page.Time(o.WakeAt)
		}
	}
}

// replay sets the verdict for a record with a stored response.
func (e *explanation) replay(r *record.Record) {
	e.Verdict, e.Reason = replays, "the effect of execution "+r.ExecutionID+" is committed"
	if r.State == record.Failed {
		e.Reason = "execution " + r.ExecutionID + " was rejected, and its effect was rolled back"
	}
	if len(e.Hashes) == 0 {
		e.Hint = "a call with another hash gets ErrMismatch instead: compare a request with --request"
	}
}

// since says since when the key is held, or returns "" if that time is unknown.
func since(entry idem.Entry) string {
	if entry.Since.IsZero() {
		return ""
	}
	return ", since " + page.Time(entry.Since)
}

// sentence ends text with a period, unless text is a question.
func sentence(text string) string {
	if strings.HasSuffix(text, "?") {
		return text
	}
	return text + "."
}

// text prints the verdict and its reason first, and then the hashes, the session and the record.
func (e *explanation) text(p *page.Page) {
	verdict := map[string]string{
		executes: p.Yellow("executes") + ": the function runs",
		replays:  p.Green("replays") + ": it returns the stored response",
		refused:  "is " + p.Red("refused") + ": " + e.Error,
		waits:    p.Yellow("waits") + ", then " + e.Error,
	}[e.Verdict]
	p.Printf("The next call %s.\n", verdict)
	p.Printf("%s\n", page.Wrap(sentence(e.Reason), "Why:  ", 100))
	if e.Hint != "" {
		p.Printf("%s\n", page.Wrap(sentence(e.Hint), "Note: ", 100))
	}
	if len(e.Hashes) > 0 {
		p.Printf("\n")
		var rows [][]string
		for _, h := range e.Hashes {
			rows = append(rows, []string{h.Way, h.text(p)})
		}
		p.Table(page.Columns("REQUEST HASHED BY", "HASH"), rows)
	}
	if e.Holder != nil {
		p.Printf("\n")
		printHolders(p, []record.Holder{*e.Holder})
	}
	if e.Record != nil {
		p.Printf("\n")
		p.Pairs(facts(p, e.Record))
	}
}

// request has the flags that describe a request. The command compares its hash with the hash in the
// record.
type request struct {
	Request     string   `placeholder:"FILE" help:"File with the body of the request. -: standard input."`
	Without     []string `placeholder:"POINTER" sep:"none" help:"JSON pointer to a value that the hash leaves out, as in idem.Without. May be repeated."`
	Only        []string `placeholder:"POINTER" sep:"none" help:"JSON pointer to a value that the hash covers, as in idem.Only. May be repeated."`
	Method      string   `placeholder:"METHOD" help:"Method of the request, for the fingerprint of idemhttp."`
	Target      string   `placeholder:"PATH" help:"Path and query as in the request line, for the fingerprint of idemhttp."`
	ContentType string   `default:"application/json" placeholder:"TYPE" help:"Media type, for the fingerprint of idemhttp. Default: ${default}."`
	Hash        string   `placeholder:"HEX" help:"The hash, for a program with a Fingerprint of its own."`
}

// requestHash is the hash of the request, computed as Way says: by a function of the library, or
// given with --hash.
type requestHash struct {
	Way  string `json:"way"`
	Hash string `json:"hash,omitempty"`
	Err  string `json:"error,omitempty"` // why there is no hash
	Same *bool  `json:"same"`            // whether Hash is the recorded hash; nil if one of them is missing
}

// hashes returns the hashes of the request: the hash itself if --hash was given, the body as
// HashJSON and HashBytes hash it, and the fingerprint of idemhttp if --method was given. The
// command computes several because it cannot know which one the program uses. If one of them equals
// the recorded hash, the request is the recorded request.
func (r *request) hashes(stdin io.Reader) ([]*requestHash, error) {
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
	body, err := r.read(stdin)
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

// newRequestHash returns a hash, or the reason why the request has none, such as a body that is not
// JSON.
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

// maxRequest is the maximum size of a request body, in bytes.
const maxRequest = 64 << 20

// read returns the body of the request. It fails for a body larger than maxRequest, so that a wrong
// file cannot fill the memory.
func (r *request) read(stdin io.Reader) ([]byte, error) {
	file := stdin
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

// anySame reports whether one of the hashes equals the recorded hash.
func anySame(hashes []*requestHash) bool {
	return slices.ContainsFunc(hashes, func(h *requestHash) bool { return h.Same != nil && *h.Same })
}

// text returns the hash, and whether it equals the recorded hash.
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
