package db

import (
	"encoding/json"
	"errors"
	"time"
)

// State is the state of a record.
type State string

const (
	Processing State = "processing"
	Completed  State = "completed"
	Failed     State = "failed"
	Running    State = "running" // an operation has the key, between its transactions
)

// Record is the record of a key as one transaction sees it. It has a response only if SameHash is
// true.
type Record struct {
	SameHash    bool
	ExecutionID string
	State       State
	Status      int
	Header      map[string][]string
	HeaderErr   error // the stored header does not decode
	Body        []byte
	SealedBy    string // the id of the key with which Body is sealed; empty if the response is plain
	Closed      bool   // Header and Body are in their stored form; Open decrypts them
	CreatedAt   time.Time
	CompletedAt time.Time
	ExpiresAt   time.Time
	LoadedAt    time.Time // when the record was read; all times are by the database's clock
}

// EncodeHeader returns the stored form of a header, or nil if the header is empty.
func EncodeHeader(header map[string][]string) ([]byte, error) {
	if len(header) == 0 {
		return nil, nil
	}
	return json.Marshal(header)
}

func decodeHeader(stored []byte) (map[string][]string, error) {
	if len(stored) == 0 {
		return nil, nil
	}
	var header map[string][]string
	if json.Unmarshal(stored, &header) != nil { // do not return the error of Unmarshal, which quotes the header
		return nil, errHeader
	}
	return header, nil
}

var errHeader = errors.New("the stored header is not a JSON object of string arrays")
