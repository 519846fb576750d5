package seal_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/idem-go/idem/seal"
)

// Whatever the database contains, Open returns what was sealed or one of three errors.
func FuzzOpen(f *testing.F) {
	strict, lenient := sealerOf("a b"), sealerOf("a b", seal.AcceptPlain())
	keyID, text := "a", unhex(f, frozen) // the same in every fuzzing process
	f.Add(keyID, text, bound)
	f.Add("", text, bound)
	f.Add("", plain, bound)
	f.Add("b", text, bound)
	f.Add("c", text, bound)
	f.Add(keyID, text[:41], bound)
	f.Add(keyID, text[:40], []byte{})
	f.Add(keyID, append([]byte{2}, text[1:]...), bound)
	f.Add(keyID, []byte{}, []byte{})
	f.Fuzz(func(t *testing.T, id string, candidate, beside []byte) {
		got, err := strict.Open(id, candidate, beside)
		genuine := id == keyID && bytes.Equal(candidate, text) && bytes.Equal(beside, bound)
		switch {
		case genuine && (err != nil || !bytes.Equal(got, plain)):
			t.Errorf("what was sealed opens as %q, %v", got, err)
		case !genuine && (err == nil || got != nil):
			t.Errorf("%q opens as %q, %v", candidate, got, err)
		case err != nil && !errors.Is(err, seal.ErrUnknownKey) && !errors.Is(err, seal.ErrTampered) && !errors.Is(err, seal.ErrPlain):
			t.Error(err)
		}
		if got, err := lenient.Open(id, candidate, beside); id == "" && err == nil && !bytes.Equal(got, candidate) {
			t.Errorf("what is plain passes as %q", got)
		}
	})
}
