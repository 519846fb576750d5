package operation

import (
	"bytes"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/store"
)

// journal is the record of an operation as a run knows it. It is loaded once for each run, and the
// commits of the run add to it.
type journal struct {
	steps map[int]store.Step    // steps of the function by their positions, which begin at 1 and have no gap
	undos map[string]store.Step // begun or done, by the names of their rows
	end   *store.Step           // the error or the rejection in which the operation ends; nil if that is not decided, or Cancel ends it
	last  int                   // the highest position of all rows
	given map[int]bool          // steps whose value a person has given

	undoing        bool // it is decided that the operation is undone
	canceled       bool
	withoutCalling bool // Cancel may not repeat a call in doubt
	withoutCode    bool // Cancel leaves steps that the code does not ask for
	runs           int  // runs that began since the last progress, or since Cancel
	replays        bool // it is a history, and no step may be taken: see Replay
}

func newJournal(rows []store.Step) journal {
	j := journal{steps: make(map[int]store.Step, len(rows)), undos: map[string]store.Step{}, given: map[int]bool{}}
	for _, s := range rows {
		if s.Outcome == store.StepResolved {
			s.Outcome = store.StepDone
			j.given[s.Seq] = true
		}
		j.add(s)
	}
	return j
}

// add adds a row, or replaces it.
func (j *journal) add(s store.Step) {
	j.last = max(j.last, s.Seq)
	switch s.Kind {
	case store.UndoStep:
		j.undos[s.Name] = s
	case store.EndStep:
		j.end = &s
	default:
		j.steps[s.Seq] = s
	}
}

// row returns the row at a position, of whatever kind.
func (j *journal) row(seq int) (store.Step, bool) {
	if s, ok := j.steps[seq]; ok {
		return s, true
	}
	for _, s := range j.undos {
		if s.Seq == seq {
			return s, true
		}
	}
	if j.end != nil && j.end.Seq == seq {
		return *j.end, true
	}
	return store.Step{}, false
}

// unwinding reports whether the function is run no further than its last recorded step, and what is
// done is undone.
func (j *journal) unwinding() bool { return j.undoing || j.canceled }

// left returns the first recorded step behind a position, nil if there is none. While the operation
// unwinds, a call that was never sent is as if it was not recorded.
func (j *journal) left(seq int) *store.Step {
	for seq++; seq <= len(j.steps); seq++ {
		if s := j.steps[seq]; s.Outcome != store.StepNotSent || !j.unwinding() {
			return &s
		}
	}
	return nil
}

// inDoubt returns the first call of the function, from a position on, that was begun and has no
// recorded outcome.
func (j *journal) inDoubt(from int) *store.Step {
	for seq := max(from, 1); seq <= len(j.steps); seq++ {
		if s := j.steps[seq]; s.Outcome == store.StepBegun {
			return &s
		}
	}
	return nil
}

// undosChanged reports whether the undos of the running code cannot take the place of the recorded
// ones: there are fewer, or there is another number than when the first of them was begun.
func (j *journal) undosChanged(s *store.Step, undos int) bool {
	_, begun := j.undos[undoName(s.Name, s.Undos-1)]
	return s.Outcome == store.StepDone && (undos < s.Undos || undos > s.Undos && begun)
}

// undoName returns the name of the row of an undo. index is its position among the undos of its
// step, from 0.
func undoName(step string, index int) string {
	if index == 0 {
		return step
	}
	return fmt.Sprintf("%s##%d", step, index+1)
}

// splitUndoName returns the step and the index of the name of an undo.
func splitUndoName(name string) (step string, index int) {
	step, number, numbered := strings.Cut(name, "##")
	if numbered {
		_, _ = fmt.Sscan(number, &index)
		index--
	}
	return step, index
}

// undoPlan returns which undos are still to run, in their order, and which steps that are done are
// kept, by the rows of an operation.
func undoPlan(rows []store.StepSummary) (undos, kept []string) {
	done := map[string]bool{}
	for _, s := range rows {
		if s.Kind == store.UndoStep && s.Outcome == store.StepDone {
			done[s.Name] = true
		}
	}
	for i := len(rows) - 1; i >= 0; i-- {
		s := &rows[i]
		if !isDone(s.Outcome) || s.Kind != store.TxStep && s.Kind != store.CallStep && s.Kind != store.ChildStep {
			continue
		}
		if s.Undos == 0 {
			kept = append([]string{s.Name}, kept...)
		}
		for index := s.Undos - 1; index >= 0; index-- {
			if !done[undoName(s.Name, index)] {
				undos = append(undos, s.Name)
			}
		}
	}
	return undos, kept
}

func isDone(o store.StepOutcome) bool { return o == store.StepDone || o == store.StepResolved }

// clock tells how long ago moments of the database's clock were.
type clock struct {
	loadedAt time.Time // when the journal was read, by the clock of the database
	loaded   time.Time // and by that of this process
}

// until returns how long it is until a moment of the database's clock.
func (c clock) until(due time.Time) time.Duration {
	return due.Sub(c.loadedAt) - time.Since(c.loaded)
}

// since returns a function that tells how long ago a moment of the database's clock was.
func (c clock) since(begun time.Time) func() time.Duration {
	return func() time.Duration { return -c.until(begun) }
}

const (
	maxValue = 1 << 20
	maxName  = 200
)

// Codec says how inputs and values of steps are stored. Decode gets what Encode has returned, maybe
// by an older program.
type Codec interface {
	Encode(value any) ([]byte, error)
	Decode(stored []byte, value any) error
}

type jsonCodec struct{}

func (jsonCodec) Encode(value any) ([]byte, error) { return json.Marshal(value) }

// Decode decodes a number that goes into an interface into a json.Number. A float64 would silently
// change what is above 2^53.
func (jsonCodec) Decode(stored []byte, value any) error {
	d := json.NewDecoder(bytes.NewReader(stored))
	d.UseNumber()
	if err := d.Decode(value); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("there is more behind the value")
	}
	return nil
}

// encode returns a value as it is stored, and as the function sees it. A value that does not decode
// must not be committed.
func encode[T any](codec Codec, value T) (stored []byte, shown T, err error) {
	if stored, err = codec.Encode(value); err != nil {
		return nil, shown, fmt.Errorf("operation: a value of type %T cannot be encoded: %w", value, err)
	}
	if len(stored) > maxValue {
		return nil, shown, fmt.Errorf("%w: %d bytes, limit %d", ErrValueTooLarge, len(stored), maxValue)
	}
	if stored == nil {
		stored = []byte{}
	}
	shown, err = decode[T](codec, stored)
	return stored, shown, err
}

func decode[T any](codec Codec, stored []byte) (value T, err error) {
	if err = codec.Decode(stored, &value); err != nil {
		var none T
		return none, fmt.Errorf("operation: a stored value does not decode into %T: %w", value, err)
	}
	return value, nil
}

// checkName returns why a name is invalid. "#" marks the second use of a name.
func checkName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: it is empty", ErrInvalidName)
	case len(name) > maxName:
		return fmt.Errorf("%w: it has %d bytes, the limit is %d", ErrInvalidName, len(name), maxName)
	case !utf8.ValidString(name), strings.ContainsRune(name, '#'), strings.ContainsFunc(name, unicode.IsControl):
		return fmt.Errorf("%w: it is not valid UTF-8, or has a control character or a \"#\"", ErrInvalidName)
	}
	return nil
}

// seal returns a value as it is stored.
func seal(s store.Sealer, plain, bound []byte) (stored []byte, err error) {
	defer panicked(&err)
	stored, err = store.SealValue(s, plain, bound)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errSealing, err)
	}
	return stored, nil
}

var errSealing = errors.New("operation: the Sealer has failed")

// open returns the value that was stored.
func open(s store.Sealer, stored, bound []byte) (plain []byte, err error) {
	defer panicked(&err)
	plain, err = store.OpenValue(s, stored, bound)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", idem.ErrUnreadable, err)
	}
	return plain, nil
}

// panicked makes a panic of a Sealer its error. The value of the panic may be a secret, unless it
// is of the runtime.
func panicked(err *error) {
	switch value := recover().(type) {
	case nil:
	case runtime.Error:
		*err = fmt.Errorf("%w: it has panicked: %w", errSealing, value)
	default:
		*err = fmt.Errorf("%w: it has panicked with a %T", errSealing, value)
	}
}

// keyTag begins what is hashed. It is frozen: other systems hold the keys.
const keyTag = "idem.operation.key/1\n"

// keyLength is how many characters a derived key has: 160 bits.
const keyLength = 32

// derivedKey returns the key by which the other side knows a call. It is the same in every attempt
// and in every process.
func derivedKey(operationID string, kind store.StepKind, name string) string {
	h := sha256.New()
	h.Write([]byte(keyTag))
	var length [8]byte
	for _, part := range []string{operationID, string(kind), name} {
		binary.BigEndian.PutUint64(length[:], uint64(len(part)))
		h.Write(length[:])
		h.Write([]byte(part))
	}
	return lower.EncodeToString(h.Sum(nil))[:keyLength]
}

var lower = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// CallKey returns the key by which the other side knows a call, for a person who has to ask there.
// kind is "call", or "undo" for the undo of the step. index is the StepStatus.Index of an undo,
// where a step has several.
func CallKey(operationID, kind, step string, index ...int) string {
	if kind == string(store.UndoStep) && len(index) > 0 {
		step = undoName(step, index[0])
	}
	return derivedKey(operationID, store.StepKind(kind), step)
}

// childTag begins what is hashed for the id of a child. It is frozen: a parent that waits finds its
// child by it.
const childTag = "idem.operation.child/1\n"

// ChildID returns the id of the operation that a Child has begun. step is its name in the
// operation, as in a StepStatus.
func ChildID(operationID, step string) string {
	key := sha256.Sum256([]byte(childTag + operationID + "\n" + step))
	id := pgtype.UUID{Valid: true}
	copy(id.Bytes[:], key[:])
	id.Bytes[6] = id.Bytes[6]&0x0f | 0x80 // version 8
	id.Bytes[8] = id.Bytes[8]&0x3f | 0x80
	return id.String()
}

func parsedID(id string) (string, error) {
	var parsed pgtype.UUID
	if parsed.Scan(id) != nil {
		return "", ErrUnknownOperation
	}
	return parsed.String(), nil
}
