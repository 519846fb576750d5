package idem

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/idem-go/idem/internal/db"
)

// The states of a record.
const (
	processing = db.IdemRecordStateProcessing
	completed  = db.IdemRecordStateCompleted
	failed     = db.IdemRecordStateFailed
)

// record is a live record as one transaction sees it.
type record struct {
	found       bool
	claimed     bool // by this transaction
	ours        bool // it carries the operation id of this call
	sameHash    bool
	state       db.IdemRecordState
	operationID string
	response    Response
	createdAt   time.Time
	completedAt time.Time
	expiresAt   time.Time
	loadedAt    time.Time
}

func (r *record) result() Result {
	return Result{
		Response: r.response, Replayed: !r.ours, Rejected: r.state == failed, OperationID: r.operationID,
		CreatedAt: r.createdAt, CompletedAt: r.completedAt, ExpiresAt: r.expiresAt,
	}
}

// readRecord reads the answer to the load statement.
func readRecord(answer *pgconn.ResultReader, types *pgtype.Map, operationID string) (record, error) {
	var r record
	if answer.NextRow() {
		row := row{values: answer.Values(), fields: answer.FieldDescriptions(), types: types}
		r.found = true
		r.sameHash = row.text("t") == "t"
		r.operationID = row.text(operationID)
		r.ours = r.operationID == operationID
		r.state = db.IdemRecordState(row.text(string(processing), string(completed)))
		r.response.Status = row.integer()
		r.response.Header = row.header()
		r.response.Body = row.bytes()
		r.createdAt = row.time()
		r.completedAt = row.time()
		r.expiresAt = row.time()
		r.loadedAt = row.time()
		if row.err != nil {
			return r, row.err
		}
	}
	_, err := answer.Close()
	return r, err
}

// row reads the values of a result row, one after the other.
type row struct {
	values [][]byte
	fields []pgconn.FieldDescription
	types  *pgtype.Map
	err    error
}

// take returns the next value and whether it is in binary format, which it is unless the simple protocol was used.
func (r *row) take() (value []byte, isBinary bool) {
	value, isBinary = r.values[0], r.fields[0].Format == binaryFormat
	r.values, r.fields = r.values[1:], r.fields[1:]
	return value, isBinary
}

// text returns a string, without a copy of its own if it is one of those expected.
func (r *row) text(expected ...string) string {
	value, _ := r.take()
	for _, s := range expected {
		if string(value) == s {
			return s
		}
	}
	return string(value)
}

func (r *row) integer() int {
	value, _ := r.take()
	n, err := strconv.Atoi(string(value))
	r.fail(err)
	return n
}

func (r *row) header() map[string][]string {
	value, _ := r.take()
	header, err := decodeHeader(value)
	r.fail(err)
	return header
}

func (r *row) bytes() []byte {
	value, isBinary := r.take()
	if isBinary || value == nil {
		return bytes.Clone(value)
	}
	var decoded []byte
	r.fail(r.types.Scan(pgtype.ByteaOID, textFormat, value, &decoded))
	return decoded
}

// microsecondsTo2000 is where the binary form of a timestamptz counts from.
const microsecondsTo2000 = 946684800 * 1_000_000

func (r *row) time() time.Time {
	value, isBinary := r.take()
	switch {
	case value == nil:
		return time.Time{}
	case isBinary && len(value) == 8:
		return time.UnixMicro(int64(binary.BigEndian.Uint64(value)) + microsecondsTo2000).UTC()
	}
	var decoded time.Time
	r.fail(r.types.Scan(pgtype.TimestamptzOID, textFormat, value, &decoded))
	return decoded.UTC()
}

func (r *row) fail(err error) {
	if err != nil && r.err == nil {
		r.err = fmt.Errorf("idem: stored record: %w", err)
	}
}
