package faultproxy

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgproto3"
)

// query returns sql as a Query message of the simple query protocol.
func query(sql string) []byte {
	raw := binary.BigEndian.AppendUint32([]byte{'Q'}, uint32(len(sql)+5))
	return append(append(raw, sql...), 0)
}

// refusal returns an ErrorResponse message with SQLSTATE 08001 and the text of err.
func refusal(err error) []byte {
	raw, _ := (&pgproto3.ErrorResponse{ // Encode fails only for a message of about 1 GB
		Severity: "FATAL", SeverityUnlocalized: "FATAL", Code: "08001", Message: fmt.Sprintf("idemtest cannot reach the server: %v", err),
	}).Encode(nil)
	return raw
}

// cString returns the NUL-terminated string at the start of body, and the bytes after it.
func cString(body []byte) (string, []byte) {
	text, rest, _ := bytes.Cut(body, []byte{0})
	return string(text), rest
}

// endsTransaction reports whether sql begins with ROLLBACK or ABORT. It returns false for COMMIT,
// because the server can answer COMMIT with a serialization failure.
func endsTransaction(sql string) bool {
	word := strings.ToLower(strings.TrimSpace(sql))
	return strings.HasPrefix(word, "rollback") || strings.HasPrefix(word, "abort")
}
