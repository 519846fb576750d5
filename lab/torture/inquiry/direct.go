package inquiry

import "github.com/idem-go/idem/lab/torture/letter"

// consumers returns the consumers of the run.
func (f *file) consumers() []letter.Consumer {
	if f.options.Direct {
		return letter.Direct()
	}
	return letter.Consumers()
}

// takeEffects fills in what the broker took, for a run without a broker. A letter counts as taken
// when a consumer handled it, in that order, or when it became a dead letter of a consumer.
func (f *file) takeEffects() {
	for _, e := range f.effects {
		k := f.of(e.ID)
		taken := letter.Entry{Taken: true, At: e.At, Letter: letter.Letter{ID: e.ID}}
		if len(k.said) > 0 {
			taken.Letter = k.said[0]
		}
		k.taken = append(k.taken, taken)
		f.taken = append(f.taken, taken)
	}
	for _, k := range f.letters {
		for consumer := range k.dead {
			if consumer != "" && len(k.said) > 0 && len(k.taken) == 0 {
				k.taken = append(k.taken, letter.Entry{Taken: true, At: f.options.Until, Letter: k.said[0]})
			}
		}
	}
}
