package canon

import "strconv"

func (w *rewriter) array(pointers []Pointer) error {
	if err := w.enter(); err != nil {
		return err
	}
	first, index := len(w.out), 0
	for w.skipSpace(); !w.accept(']'); w.skipSpace() {
		if index > 0 && !w.accept(',') {
			return w.refuse(w.pos, "expected ',' or ']'")
		}
		start := len(w.out)
		if start > first {
			w.out = append(w.out, ',')
		}
		drop, err := w.element(pointers, index)
		if err != nil {
			return err
		}
		if drop {
			w.out = w.out[:start]
		}
		index++
	}
	w.leave(']')
	return nil
}

func (w *rewriter) element(pointers []Pointer, index int) (drop bool, err error) {
	if len(pointers) > 0 {
		token := strconv.AppendInt(append(make([]byte, 0, 24), '"'), int64(index), 10)
		pointers = below(pointers, w.depth-1, append(token, '"'))
	}
	return w.value(pointers)
}
