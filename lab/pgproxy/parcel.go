package pgproxy

import "time"

// parcel is a section of a stream that is forwarded in one write.
type parcel struct {
	data   []byte
	marks  []mark
	due    time.Time
	strike *strike // the trap that springs after the last byte; may be nil
}

// mark is a position in a parcel at which the client stops waiting for answers. The client can
// react as soon as it has the bytes before the mark.
type mark struct {
	end     int // offset in the data of the parcel
	answers int // number of answers for which the client stops waiting
}

// draft collects what the reader has decoded. Its last bytes can wait until the reader has decided
// what happens to them.
type draft struct {
	ready []parcel
	data  []byte
	marks []mark
	held  int // offset in data of the first byte that is not ready yet, or -1
}

func newDraft() draft { return draft{held: -1} }

func (d *draft) add(b []byte) { d.data = append(d.data, b...) }

// note adds a mark at the end of the data.
func (d *draft) note(m mark) {
	m.end = len(d.data)
	d.marks = append(d.marks, m)
}

// hold holds back everything that is added from now on.
func (d *draft) hold() {
	if d.held < 0 {
		d.held = len(d.data)
	}
}

func (d *draft) release() { d.held = -1 }

// strike ends the current parcel before the held bytes. The trap in s springs at the end of that
// parcel, and the held bytes follow.
func (d *draft) strike(s *strike) {
	first := d.cut(d.passable())
	first.strike = s
	d.ready = append(d.ready, first)
	d.release()
}

// take removes and returns everything that is not held back.
func (d *draft) take() []parcel {
	if n := d.passable(); n > 0 {
		d.ready = append(d.ready, d.cut(n))
	}
	ready := d.ready
	d.ready = nil
	return ready
}

func (d *draft) passable() int {
	if d.held >= 0 {
		return d.held
	}
	return len(d.data)
}

// cut removes the first n bytes and their marks from the draft.
func (d *draft) cut(n int) parcel {
	x := parcel{data: d.data, marks: d.marks}
	first, rest := x.split(n)
	d.data, d.marks = append([]byte(nil), rest.data...), rest.marks
	if d.held >= 0 {
		d.held -= n
	}
	return first
}

// split divides x after its n-th byte. If a trap springs after the last byte of x, it springs after
// the last byte of rest.
func (x parcel) split(n int) (first, rest parcel) {
	first, rest = x, x
	first.data, rest.data = x.data[:n:n], x.data[n:]
	first.marks, rest.marks, first.strike = nil, nil, nil
	for _, m := range x.marks {
		if m.end <= n {
			first.marks = append(first.marks, m)
			continue
		}
		m.end -= n
		rest.marks = append(rest.marks, m)
	}
	return first, rest
}
