package roundtrip

import (
	"strconv"
	"time"
)

// Values are the parameters of one statement, in their order. They are made by Trip.Values, and Trip.Add copies them: their memory
// serves the next statement.
type Values struct {
	list [][]byte
	text []byte // what the list points to, or its beginning: then it had to grow

	listRoom [16][]byte
	textRoom [256]byte
}

// reset begins the values of another statement.
func (v *Values) reset() {
	if v.text == nil { // which would make a NULL of what is empty
		v.list, v.text = v.listRoom[:0], v.textRoom[:0]
	}
	v.list, v.text = v.list[:0], v.text[:0]
}

// List are the values as Trip.Add takes them.
func (v *Values) List() [][]byte { return v.list }

// piece ends a value that was appended to the text from start on.
func (v *Values) piece(start int) {
	end := len(v.text)
	v.list = append(v.list, v.text[start:end:end])
}

// Text adds a text.
func (v *Values) Text(s string) {
	start := len(v.text)
	v.text = append(v.text, s...)
	v.piece(start)
}

// Bytes adds a bytea; nil is NULL.
func (v *Values) Bytes(b []byte) { v.list = append(v.list, b) }

// Int adds a number.
func (v *Values) Int(n int) { v.Int64(int64(n)) }

// Int64 adds a number.
func (v *Values) Int64(n int64) {
	start := len(v.text)
	v.text = strconv.AppendInt(v.text, n, 10)
	v.piece(start)
}

// Bool adds a boolean.
func (v *Values) Bool(b bool) {
	start := len(v.text)
	v.text = strconv.AppendBool(v.text, b)
	v.piece(start)
}

// Interval adds a time, in a form that no setting of the session reads in another way.
func (v *Values) Interval(d time.Duration) {
	start := len(v.text)
	v.text = append(strconv.AppendInt(v.text, d.Microseconds(), 10), " microseconds"...)
	v.piece(start)
}

// NullText adds a text, NULL if it is nil.
func (v *Values) NullText(s *string) { addOrNull(v, s, v.Text) }

// NullInt adds a number, NULL if it is nil.
func (v *Values) NullInt(n *int) { addOrNull(v, n, v.Int) }

// NullInt64 adds a number, NULL if it is nil.
func (v *Values) NullInt64(n *int64) { addOrNull(v, n, v.Int64) }

// NullBool adds a boolean, NULL if it is nil.
func (v *Values) NullBool(b *bool) { addOrNull(v, b, v.Bool) }

// NullInterval adds a time, NULL if it is nil.
func (v *Values) NullInterval(d *time.Duration) { addOrNull(v, d, v.Interval) }

func addOrNull[T any](v *Values, value *T, add func(T)) {
	if value == nil {
		v.list = append(v.list, nil)
		return
	}
	add(*value)
}
