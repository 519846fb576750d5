package db

import (
	"encoding/json"
	"errors"
	"time"
)

// State is the state of a record.
type State string

// The states of a record.
const (
	Processing State = "processing"
	Completed  State = "completed"
	Failed     State = "failed"
	Running    State = "running" // an operation between its transactions
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
	SealedBy    string // the key that Body is sealed with, empty if the response is plain
	Closed      bool   // Header and Body are as they were stored; Open opens them
	CreatedAt   time.Time
	CompletedAt time.Time
	ExpiresAt   time.Time
	LoadedAt    time.Time // all times are of the database clock
}

// EncodeHeader returns the stored form of a header, nil if it is empty.
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
	if json.Unmarshal(stored, &header) != nil { // the error of Unmarshal would quote the header
		return nil, errHeader
	}
	return header, nil
}

var errHeader = errors.New("the stored header is not a JSON object of string arrays")
