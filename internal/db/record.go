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
	Running    State = "running" // of an operation, between its transactions
)

// Record is the record of a key as one transaction sees it. It has a response only if the hash is the caller's.
type Record struct {
	SameHash    bool
	ExecutionID string
	State       State
	Status      int
	Header      map[string][]string
	HeaderErr   error // what is stored as the header is none
	Body        []byte
	SealedBy    string // the key that Body is sealed with, empty if the response is plain
	Closed      bool   // header and body are as they were stored: Open makes a response of them
	CreatedAt   time.Time
	CompletedAt time.Time
	ExpiresAt   time.Time
	LoadedAt    time.Time // by the clock of the database, as all the others
}

// EncodeHeader returns a header as it is stored, nil if there is none.
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
	if json.Unmarshal(stored, &header) != nil { // whose error has a part of it
		return nil, errHeader
	}
	return header, nil
}

var errHeader = errors.New("what is stored as its header is not an object of arrays of strings")
