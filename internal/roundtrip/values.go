package roundtrip

import (
	"strconv"
	"time"
)

// Values are the parameters of one statement, in order. Trip.Values returns an empty list to fill.
// Trip.Add copies the values, so the next statement can reuse the memory.
type Values struct {
	list [][]byte
	text []byte // the memory of the values in list; after text has grown, the earlier values are in its old memory

	listRoom [16][]byte
	textRoom [256]byte
}

func (v *Values) reset() {
	if v.text == nil { // an empty value must not be nil, because nil means NULL
		v.list, v.text = v.listRoom[:0], v.textRoom[:0]
	}
	v.list, v.text = v.list[:0], v.text[:0]
}

// List returns the values for Trip.Add.
func (v *Values) List() [][]byte { return v.list }

// add adds a value to the list: the part of text from start to the end.
func (v *Values) add(start int) {
	end := len(v.text)
	v.list = append(v.list, v.text[start:end:end])
}

func (v *Values) Text(s string) {
	start := len(v.text)
	v.text = append(v.text, s...)
	v.add(start)
}

// Bytes adds a bytea, or NULL if b is nil.
func (v *Values) Bytes(b []byte) { v.list = append(v.list, b) }

func (v *Values) Int(n int) { v.Int64(int64(n)) }

func (v *Values) Int64(n int64) {
	start := len(v.text)
	v.text = strconv.AppendInt(v.text, n, 10)
	v.add(start)
}

func (v *Values) Bool(b bool) {
	start := len(v.text)
	v.text = strconv.AppendBool(v.text, b)
	v.add(start)
}

// Interval adds a duration in a form that no setting of the session changes.
func (v *Values) Interval(d time.Duration) {
	start := len(v.text)
	v.text = append(strconv.AppendInt(v.text, d.Microseconds(), 10), " microseconds"...)
	v.add(start)
}

// NullText adds a string, or NULL if s is nil.
func (v *Values) NullText(s *string) { addOrNull(v, s, v.Text) }

// NullInt adds a number, or NULL if n is nil.
func (v *Values) NullInt(n *int) { addOrNull(v, n, v.Int) }

// NullInt64 adds a number, or NULL if n is nil.
func (v *Values) NullInt64(n *int64) { addOrNull(v, n, v.Int64) }

// NullBool adds a boolean, or NULL if b is nil.
func (v *Values) NullBool(b *bool) { addOrNull(v, b, v.Bool) }

// NullInterval adds a duration, or NULL if d is nil.
func (v *Values) NullInterval(d *time.Duration) { addOrNull(v, d, v.Interval) }

func addOrNull[T any](v *Values, value *T, add func(T)) {
	if value == nil {
		v.list = append(v.list, nil)
		return
	}
	add(*value)
}
