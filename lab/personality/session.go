package personality

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/idem-go/idem/lab/pgproxy"
)

// session is one client connection together with its connection to the server.
type session struct {
	*Proxy
	client, server net.Conn
	commits        map[string]bool // prepared statements by name; true for a COMMIT
	portals        map[string]fate // the fate of the statement in each portal

	mu    sync.Mutex
	asked asked
}

// serve handles one client until either side closes its connection.
func (p *Proxy) serve(client net.Conn) {
	if !p.keep(client) {
		client.Close()
		return
	}
	defer p.release(client)
	server, err := net.Dial(p.network, p.address)
	if err != nil {
		return
	}
	if !p.keep(server) {
		server.Close()
		return
	}
	defer p.release(server)
	s := &session{Proxy: p, client: client, server: server, commits: map[string]bool{}, portals: map[string]fate{}}
	if !s.greet() {
		return
	}
	// When one direction ends, close the other side, so that the other direction ends too.
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.relay(client, server, s.request)
		server.Close()
	}()
	s.relay(server, client, s.answer)
	client.Close()
	<-done
}

// greet forwards the startup phase of a client. It refuses startup parameters and adds the settings
// of the personality to the options. It reports false if the session ends here, as after a
// CancelRequest.
func (s *session) greet() bool {
	backend := pgproto3.NewBackend(s.client, s.client)
	for {
		message, err := backend.ReceiveStartupMessage()
		if err != nil {
			return false
		}
		switch message := message.(type) {
		case *pgproto3.StartupMessage:
			for name := range message.Parameters {
				if refusal, ok := s.personality.Startup[name]; ok {
					s.client.Write(refusal.message("FATAL"))
					return false
				}
			}
			if settings := s.personality.Settings; settings != "" {
				message.Parameters["options"] = strings.TrimSpace(message.Parameters["options"] + " " + settings)
			}
			return s.send(message)
		case *pgproto3.CancelRequest:
			s.send(message)
			return false
		default: // a request for encryption, which is declined
			if _, err := s.client.Write([]byte{'N'}); err != nil {
				return false
			}
		}
	}
}

func (s *session) send(message pgproto3.FrontendMessage) bool {
	encoded, err := message.Encode(nil)
	if err == nil {
		_, err = s.server.Write(encoded)
	}
	return err == nil
}

const headerLen = 5 // the type byte, and a length that includes itself but not the type

// relay forwards messages as edit returns them, until one side closes or edit reports false. It
// flushes its buffer whenever it has no further input, so that no message waits for another.
func (s *session) relay(from, to net.Conn, edit func(message []byte) (edited []byte, goOn bool)) {
	r, w := bufio.NewReaderSize(from, 32<<10), bufio.NewWriterSize(to, 32<<10)
	for {
		header, err := r.Peek(headerLen)
		if err != nil {
			return
		}
		message := make([]byte, 1+int(binary.BigEndian.Uint32(header[1:])))
		if _, err := io.ReadFull(r, message); err != nil {
			return
		}
		message, goOn := edit(message)
		if _, err := w.Write(message); err != nil || !goOn {
			return
		}
		if r.Buffered() == 0 && w.Flush() != nil {
			return
		}
	}
}

// request edits a client message and records it if the server answers it.
func (s *session) request(message []byte) ([]byte, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	body := message[headerLen:]
	switch message[0] {
	case 'P':
		return s.parse(message), true
	case 'B':
		return s.bind(message), true
	case 'E':
		portal, _, _ := bytes.Cut(body, []byte{0})
		s.asked.add(request{kind: 'E', fates: []fate{s.portals[string(portal)]}})
	case 'Q':
		return s.query(string(body[:len(body)-1])), true
	case 'C':
		s.asked.add(request{kind: 'C'})
	case 'S', 'F':
		s.asked.add(request{kind: 'S'})
	}
	return message, true
}

// parse replaces the text of a refused statement by text that fails, and renames replaced
// functions.
func (s *session) parse(message []byte) []byte {
	// The body of Parse is the name, the SQL, and the types of the parameters.
	parts := bytes.SplitN(message[headerLen:], []byte{0}, 3)
	name, sql := string(parts[0]), string(parts[1])
	refusal := s.personality.refusal(sql)
	s.asked.add(request{kind: 'P', refusal: refusal})
	s.commits[name] = pgproxy.IsCommit(pgproxy.Statement{SQL: sql})
	if refusal != nil {
		s.refused.Add(1)
		sql = refusedText
	} else {
		sql = s.personality.instead(sql)
	}
	return frame('P', []byte(name), []byte{0}, []byte(sql), []byte{0}, parts[2])
}

// refusedText is invalid SQL. The server fails on it at once, and the proxy replaces that error by
// the error of the refusal.
const refusedText = "refused"

// rollbackName is the prepared statement that runs in place of a COMMIT that has to fail with a
// conflict.
const rollbackName = "personality_rollback"

// bind decides the fate of a COMMIT when the client binds it. For a conflict, it binds the portal
// to a ROLLBACK: it closes and parses a statement of its own, whose answers the client does not
// see.
func (s *session) bind(message []byte) []byte {
	// The body of Bind is the portal, the prepared statement, and the parameters.
	parts := bytes.SplitN(message[headerLen:], []byte{0}, 3)
	portal := string(parts[0])
	s.portals[portal] = plain
	if !s.commits[string(parts[1])] {
		return message
	}
	f := s.fate()
	s.portals[portal] = f
	if f != conflict {
		return message
	}
	s.asked.add(request{kind: 'C', own: true})
	s.asked.add(request{kind: 'P', own: true})
	rollback := frame('C', []byte{'S'}, []byte(rollbackName), []byte{0})
	rollback = append(rollback, frame('P', []byte(rollbackName), []byte{0}, []byte("rollback"), []byte{0, 0, 0})...)
	return append(rollback, frame('B', parts[0], []byte{0}, []byte(rollbackName), []byte{0}, parts[2])...)
}

// query edits a simple Query. A refused statement replaces the whole string by text that fails,
// because the server would have executed the statements in front of it.
func (s *session) query(sql string) []byte {
	asked := request{kind: 'Q'}
	statements := pgproxy.Split(sql)
	// Each COMMIT in the string has a fate of its own.
	for i, statement := range statements {
		if asked.refusal = s.personality.refusal(statement); asked.refusal != nil {
			s.refused.Add(1)
			statements = []string{refusedText}
			break
		}
		f := plain
		if pgproxy.IsCommit(pgproxy.Statement{SQL: statement}) {
			if f = s.fate(); f == conflict {
				statement = "rollback"
			}
		}
		asked.fates = append(asked.fates, f)
		statements[i] = s.personality.instead(statement)
	}
	s.asked.add(asked)
	return frame('Q', []byte(strings.Join(statements, "\n;")), []byte{0})
}

// answer edits a server message, and removes the request that it completes.
func (s *session) answer(message []byte) ([]byte, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch message[0] {
	case '1', '3': // ParseComplete, CloseComplete
		if s.asked.complete().own {
			return nil, true
		}
	case 'E':
		if refusal := s.asked.head().refusal; refusal != nil {
			return refusal.message("ERROR"), true
		}
	case 'C', 's', 'I': // CommandComplete, PortalSuspended, EmptyQueryResponse
		return s.completed(message)
	case 'Z':
		s.asked.ready()
	}
	return message, true
}

// completed carries out the fate of a COMMIT when the server has completed it. It only acts if the
// command tag shows that the server did what was expected. A COMMIT in a failed transaction, for
// example, is answered with ROLLBACK and has no fault.
func (s *session) completed(message []byte) ([]byte, bool) {
	f := s.asked.executed()
	tag := strings.TrimRight(string(message[headerLen:]), "\x00")
	switch {
	case f == conflict && tag == "ROLLBACK":
		s.told[f].Add(1)
		refusal := Refusal{"40001", "change conflicts with another transaction, please retry: (OC000)"}
		return refusal.message("ERROR"), true
	case f == uncertain && tag == "COMMIT":
		s.told[f].Add(1)
		refusal := Refusal{s.faults.Code, "it is not known whether the transaction was committed"}
		return refusal.message("ERROR"), true
	case f == lost && tag == "COMMIT":
		s.told[f].Add(1)
		return nil, false
	}
	return message, true
}

func (r *Refusal) message(severity string) []byte {
	encoded, err := (&pgproto3.ErrorResponse{Severity: severity, SeverityUnlocalized: severity, Code: r.Code, Message: r.Message}).Encode(nil)
	if err != nil {
		panic(fmt.Sprintf("personality: %v", err))
	}
	return encoded
}

func frame(kind byte, parts ...[]byte) []byte {
	body := bytes.Join(parts, nil)
	message := binary.BigEndian.AppendUint32([]byte{kind}, uint32(4+len(body)))
	return append(message, body...)
}
