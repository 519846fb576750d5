package conform_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// server follows the rules of a profile, except the one in breaks.
type server struct {
	t        *testing.T
	profile  string
	breaks   string
	mu       sync.Mutex
	made     int
	recorded map[string]*recorded
}

type recorded struct {
	body string
	done chan struct{} // closed when there is an answer
	id   int
	asks int // number of repetitions
}

func newServer(t *testing.T, profile, breaks string) *httptest.Server {
	t.Helper()
	s := &server{t: t, profile: profile, breaks: breaks, recorded: map[string]*recorded{}}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	return server
}

// keyOf returns the key of a request, whether it has one, and whether the key is invalid.
func (s *server) keyOf(r *http.Request, body []byte) (key string, has, invalid bool) {
	if s.profile == "aip155" {
		var said struct {
			ID *string `json:"request_id"`
		}
		if json.Unmarshal(body, &said) != nil || said.ID == nil {
			return "", false, false
		}
		return *said.ID, true, len(*said.ID) != 36 && s.breaks != "malformed-id"
	}
	keys := r.Header.Values("Idempotency-Key")
	if len(keys) == 0 {
		return "", false, false
	}
	key = keys[0]
	if len(keys) > 1 {
		return key, true, s.breaks != "two-keys"
	}
	most := 255
	if s.profile == "ietf" {
		most = 6000
		key = strings.Trim(key, `"`)
	}
	switch {
	case key == "":
		return key, true, s.breaks != "empty-key"
	case len(key) > most:
		return key, true, s.breaks != "long-key"
	}
	return key, true, false
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	if values := r.Header.Values("Idempotency-Key"); s.profile == "acp" && len(values) > 0 && s.breaks != "echo" {
		w.Header()["Idempotency-Key"] = values
	}
	key, has, invalid := s.keyOf(r, body)
	required := s.profile == "ietf" || s.profile == "acp"
	switch {
	case invalid:
		s.refuse(w, 400, "invalid")
		return
	case !has && required != (s.breaks == "no-key"):
		s.refuse(w, 400, "idempotency_key_required")
		return
	case !has:
		s.answer(w, s.next(), false)
		return
	case s.breaks == "long-key" && s.profile == "ietf" && len(key) > 1000:
		w.WriteHeader(500)
		return
	case bytes.Contains(body, []byte("declined")):
		s.decline(w, key)
		return
	}
	s.keyed(w, r, key, body)
}

func (s *server) keyed(w http.ResponseWriter, r *http.Request, key string, body []byte) {
	who := r.Header.Get("Authorization")
	if s.breaks == "principal" {
		who = ""
	}
	fingerprint := s.fingerprint(body)
	s.mu.Lock()
	record, known := s.recorded[who+"/"+key]
	if !known {
		record = &recorded{body: fingerprint, done: make(chan struct{})}
		s.recorded[who+"/"+key] = record
	}
	s.mu.Unlock()
	switch {
	case !known:
		if record.id = s.next(); s.breaks == "after-a-cut" && record.id == 3 {
			<-r.Context().Done() // the third execution is the cut one; its key is never released
			return
		}
		close(record.done)
		s.answer(w, record.id, false)
	case record.body != fingerprint && s.breaks != "other-request":
		status := map[string]int{"ietf": 422, "acp": 422, "stripe": 400, "stripe-v2": 400, "ucp": 409, "aip155": 400}[s.profile]
		s.refuse(w, status, "idempotency_conflict")
	default:
		select {
		case <-record.done:
		default:
			s.refuse(w, http.StatusConflict, "idempotency_in_flight")
			return
		}
		id := record.id
		if s.breaks == "repetition" || s.breaks == "at-once" && s.isStorm(record) {
			id = s.next()
		}
		s.answer(w, id, s.breaks != "replay-mark")
	}
}

// decline answers a request that fails. Only a server that breaks the rule failed-request stores
// the failure.
func (s *server) decline(w http.ResponseWriter, key string) {
	s.mu.Lock()
	_, known := s.recorded[key]
	s.recorded[key] = nil
	s.mu.Unlock()
	if known && s.breaks == "failed-request" {
		w.Header().Set("Idempotent-Replayed", "true")
	}
	s.refuse(w, http.StatusPaymentRequired, "declined")
}

// isStorm reports whether a key has arrived very often.
func (s *server) isStorm(r *recorded) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.asks++
	return r.asks > 10
}

func (s *server) fingerprint(body []byte) string {
	var object map[string]any
	if s.breaks == "same-json" || json.Unmarshal(body, &object) != nil {
		return string(body)
	}
	if s.breaks == "same-number" { // treats 1 and 1.0 as different
		decoder := json.NewDecoder(bytes.NewReader(body))
		decoder.UseNumber()
		if err := decoder.Decode(&object); err != nil {
			s.t.Error(err)
		}
	}
	delete(object, "request_id")
	canonical, err := json.Marshal(object)
	if err != nil {
		s.t.Error(err)
	}
	return string(bytes.TrimSpace(canonical))
}

func (s *server) next() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.made++
	return s.made
}

// answer answers with an object. In profile stripe-v2 a replay is the updated object.
func (s *server) answer(w http.ResponseWriter, id int, replayed bool) {
	if replayed {
		w.Header().Set("Idempotent-Replayed", "true")
	}
	w.WriteHeader(http.StatusCreated)
	_, _ = fmt.Fprintf(w, `{"id":%d,"updated":%t}`, id, replayed && s.profile == "stripe-v2")
}

func (s *server) refuse(w http.ResponseWriter, status int, code string) {
	if s.breaks == "codes" {
		code = "no"
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	kind := "https://example.com/problems#" + code
	if s.breaks == "documented-refusal" {
		kind = "about:blank"
	}
	_ = json.NewEncoder(w).Encode(map[string]string{"type": kind, "code": code, "message": code})
}
