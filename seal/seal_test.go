package seal_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/seal"
)

var _ idem.Sealer = (*seal.Sealer)(nil)

// secret returns a secret for tests.
func secret(n byte) []byte { return bytes.Repeat([]byte{n}, seal.SecretSize) }

// sealerOf returns a Sealer with the keys of these IDs. The first is the primary.
func sealerOf(ids string, options ...seal.Option) *seal.Sealer {
	keys := seal.Keys{Secrets: map[string][]byte{}}
	for _, id := range strings.Fields(ids) {
		keys.Secrets[id] = secret(id[0])
	}
	keys.Primary, _, _ = strings.Cut(ids, " ")
	return seal.New(keys, options...)
}

var plain, bound = []byte("the response"), []byte("what it is bound to")

func sealed(t testing.TB, s *seal.Sealer) (keyID string, text []byte) {
	t.Helper()
	keyID, text, err := s.Seal(plain, bound)
	if err != nil {
		t.Fatal(err)
	}
	return keyID, text
}

func wantOpen(t *testing.T, s *seal.Sealer, keyID string, text []byte) {
	t.Helper()
	if got, err := s.Open(keyID, text, bound); err != nil || !bytes.Equal(got, plain) {
		t.Errorf("%q opens as %q, %v", keyID, got, err)
	}
}

func wantError(t *testing.T, s *seal.Sealer, keyID string, text, bound []byte, want error) {
	t.Helper()
	got, err := s.Open(keyID, text, bound)
	if got != nil {
		t.Errorf("%q opens as %q", keyID, got)
	}
	for _, known := range []error{seal.ErrUnknownKey, seal.ErrTampered, seal.ErrPlain} {
		if errors.Is(err, known) != (known == want) {
			t.Errorf("errors.Is(%v, %v) is %t", err, known, errors.Is(err, known))
		}
	}
}

func TestSeal_HidesThePlainTextAndOpenReturnsIt(t *testing.T) {
	t.Parallel()
	s := sealerOf("a")
	for _, size := range []int{0, 1, 15, 16, 17, 1024, 1 << 20} {
		plain := bytes.Repeat([]byte("0123456789abcdef"), size/16+1)[:size]
		keyID, text, err := s.Seal(plain, bound)
		if err != nil || keyID != "a" || len(text) != size+41 {
			t.Fatalf("%d bytes are sealed by %q in %d, %v", size, keyID, len(text), err)
		}
		if size >= 16 && bytes.Contains(text, plain[:16]) {
			t.Errorf("%d bytes: they are visible", size)
		}
		if got, err := s.Open(keyID, text, bound); err != nil || !bytes.Equal(got, plain) {
			t.Errorf("%d bytes: not the same, %v", size, err)
		}
	}
}

func TestSeal_NeverReturnsTheSameBytes(t *testing.T) {
	t.Parallel()
	s := sealerOf("a")
	salts, nonces := map[string]bool{}, map[string]bool{}
	const n = 1000
	for range n {
		_, text := sealed(t, s)
		salts[string(text[1:13])], nonces[string(text[13:25])] = true, true
	}
	if len(salts) != n || len(nonces) != n {
		t.Errorf("of %d, %d have a key and %d a nonce of their own", n, len(salts), len(nonces))
	}
}

func TestOpen_DetectsEveryFlippedBit(t *testing.T) {
	t.Parallel()
	s := sealerOf("a b")
	keyID, text := sealed(t, s)
	flipped := func(b []byte, bit int) []byte {
		b = bytes.Clone(b)
		b[bit/8] ^= 1 << (bit % 8)
		return b
	}
	for bit := range 8 * len(text) {
		wantError(t, s, keyID, flipped(text, bit), bound, seal.ErrTampered)
	}
	for bit := range 8 * len(bound) {
		wantError(t, s, keyID, text, flipped(bound, bit), seal.ErrTampered)
	}
	for n := range text {
		wantError(t, s, keyID, text[:n], bound, seal.ErrTampered)
		wantError(t, s, keyID, text[n+1:], bound, seal.ErrTampered)
	}
	wantError(t, s, keyID, append(bytes.Clone(text), 0), bound, seal.ErrTampered)
	wantError(t, s, keyID, text, bound[:len(bound)-1], seal.ErrTampered)
	wantError(t, s, keyID, text, nil, seal.ErrTampered)
	wantError(t, s, "b", text, bound, seal.ErrTampered)
	wantError(t, s, keyID, plain, bound, seal.ErrTampered)
}

func TestOpen_DistinguishesItsThreeErrors(t *testing.T) {
	t.Parallel()
	keyID, text := sealed(t, sealerOf("a"))
	wantError(t, sealerOf("b"), keyID, text, bound, seal.ErrUnknownKey)
	wantError(t, sealerOf("b"), strings.Repeat("x", 1<<20), text, bound, seal.ErrUnknownKey)
	wantError(t, sealerOf("a"), "", plain, bound, seal.ErrPlain)
	wantError(t, sealerOf("a"), "", nil, bound, seal.ErrPlain)
	wantError(t, sealerOf("a"), "", text, bound, seal.ErrPlain)
	other := seal.New(seal.Keys{Primary: "a", Secrets: map[string][]byte{"a": secret('x')}})
	wantError(t, other, keyID, text, bound, seal.ErrTampered)
	if _, err := sealerOf("b").Open(strings.Repeat("x", 1<<20), text, bound); len(err.Error()) > 200 {
		t.Errorf("an id that a stranger has put there makes an error of %d bytes", len(err.Error()))
	}
}

func TestOpen_AcceptPlain(t *testing.T) {
	t.Parallel()
	_, text := sealed(t, sealerOf("a"))
	for name, s := range map[string]*seal.Sealer{
		"accept": sealerOf("b a", seal.AcceptPlain()), "write": sealerOf("b a", seal.WritePlain()),
	} {
		wantOpen(t, s, "", plain)
		wantOpen(t, s, "a", text)
		wantError(t, s, "", text, bound, seal.ErrTampered) // the key ID was removed
		if got, err := s.Open("", nil, bound); got != nil || err != nil {
			t.Errorf("%s: nothing is %q, %v", name, got, err)
		}
		if got, err := s.Open("", []byte{1, 2}, bound); !bytes.Equal(got, []byte{1, 2}) || err != nil {
			t.Errorf("%s: what begins like something sealed is %q, %v", name, got, err)
		}
	}
	if keyID, text, err := sealerOf("a", seal.WritePlain()).Seal(plain, bound); keyID != "" || !bytes.Equal(text, plain) || err != nil {
		t.Errorf("WritePlain seals as %q by %q, %v", text, keyID, err)
	}
	if keyID, _ := sealed(t, sealerOf("a", seal.AcceptPlain())); keyID != "a" {
		t.Errorf("AcceptPlain seals by %q", keyID)
	}
}

func TestSealer_RotatesKeysWithoutInterruption(t *testing.T) {
	t.Parallel()
	steps := []*seal.Sealer{sealerOf("a"), sealerOf("a b"), sealerOf("b a"), sealerOf("b")}
	for i, writer := range steps {
		keyID, text := sealed(t, writer)
		for _, reader := range steps[max(i-1, 0):min(i+2, len(steps))] { // the steps that run at the same time
			wantOpen(t, reader, keyID, text)
		}
	}
	keyID, text := sealed(t, steps[0])
	wantError(t, steps[3], keyID, text, bound, seal.ErrUnknownKey)
}

func TestNew_InvalidKeysFailEveryCallAndLeakNoSecret(t *testing.T) {
	t.Parallel()
	secrets := func(of ...any) map[string][]byte {
		m := map[string][]byte{}
		for i := 0; i < len(of); i += 2 {
			m[of[i].(string)] = of[i+1].([]byte)
		}
		return m
	}
	hush := []byte("hush, this is a secret of 33 byte")
	for name, test := range map[string]struct {
		keys seal.Keys
		want string
	}{
		"no keys":           {seal.Keys{}, "Secrets is empty"},
		"no primary":        {seal.Keys{Secrets: secrets("a", secret(1))}, `Primary is ""`},
		"another primary":   {seal.Keys{Primary: "b", Secrets: secrets("a", secret(1))}, `Primary is "b"`},
		"empty id":          {seal.Keys{Primary: "", Secrets: secrets("", secret(1))}, `"" is not a key ID`},
		"long id":           {seal.Keys{Primary: "a", Secrets: secrets("a", secret(1), strings.Repeat("x", 65), secret(1))}, "is not a key ID"},
		"space":             {seal.Keys{Primary: "a b", Secrets: secrets("a b", secret(1))}, "is not a key ID"},
		"not ASCII":         {seal.Keys{Primary: "ü", Secrets: secrets("ü", secret(1))}, "is not a key ID"},
		"short secret":      {seal.Keys{Primary: "a", Secrets: secrets("a", hush[:31])}, "31 bytes"},
		"long secret":       {seal.Keys{Primary: "a", Secrets: secrets("a", hush)}, "33 bytes"},
		"nil secret":        {seal.Keys{Primary: "a", Secrets: secrets("a", []byte(nil))}, "0 bytes"},
		"secret of zeros":   {seal.Keys{Primary: "a", Secrets: secrets("a", secret(0))}, "zero bytes"},
		"secret as primary": {seal.Keys{Primary: "123456789+12hush", Secrets: secrets("a", secret(1))}, `Primary is "123456789+12"`},
		"secret as id":      {seal.Keys{Primary: "a", Secrets: secrets("a", secret(1), "123456789+12hush", []byte("a"))}, "1 bytes"},
		"bad secret as id":  {seal.Keys{Primary: "a", Secrets: secrets("a", secret(1), "123456789 12hush", []byte("a"))}, "is not a key ID"},
		"one of two is bad": {seal.Keys{Primary: "a", Secrets: secrets("a", secret(1), "b", hush[:16])}, "16 bytes"},
	} {
		s := seal.New(test.keys, seal.AcceptPlain())
		_, _, sealErr := s.Seal(plain, bound)
		_, openErr := s.Open("", plain, bound)
		for _, err := range []error{s.Check(), sealErr, openErr, idem.CheckOptions(idem.WithSealer(s))} {
			if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "hush") {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if err := seal.New(seal.Keys{Primary: "a", Secrets: secrets("a", secret(1))}, nil).Check(); err == nil {
		t.Error("a nil Option passes")
	}
	var none *seal.Sealer
	if err := idem.CheckOptions(idem.WithSealer(none)); err == nil {
		t.Error("a nil *Sealer passes")
	}
	if err := idem.CheckOptions(idem.WithSealer(sealerOf("a " + strings.Repeat("x", 64)))); err != nil {
		t.Error(err)
	}
}

func TestNew_CopiesTheKeys(t *testing.T) {
	t.Parallel()
	keys := seal.Keys{Primary: "a", Secrets: map[string][]byte{"a": secret('a')}}
	s := seal.New(keys)
	keyID, text := sealed(t, s)
	clear(keys.Secrets["a"])
	delete(keys.Secrets, "a")
	wantOpen(t, s, keyID, text)
	keyID, text = sealed(t, s)
	wantOpen(t, sealerOf("a"), keyID, text)
}

func TestSeal_DoesNotModifyItsArguments(t *testing.T) {
	t.Parallel()
	s := sealerOf("a")
	given := [][]byte{bytes.Clone(plain), bytes.Clone(bound)}
	keyID, text, err := s.Seal(given[0], given[1])
	if err != nil {
		t.Fatal(err)
	}
	before := bytes.Clone(text)
	wantOpen(t, s, keyID, text)
	if !slices.EqualFunc(given, [][]byte{plain, bound}, bytes.Equal) || !bytes.Equal(before, text) {
		t.Error("something was changed")
	}
}

func TestSealer_IsSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	s := sealerOf("a b")
	done := make(chan error)
	const callers = 8
	for range callers {
		go func() {
			for range 200 {
				keyID, text, err := s.Seal(plain, bound)
				if err == nil {
					text, err = s.Open(keyID, text, bound)
				}
				if err != nil || !bytes.Equal(text, plain) {
					done <- fmt.Errorf("%q, %w", text, err)
					return
				}
			}
			done <- nil
		}()
	}
	for range callers {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
