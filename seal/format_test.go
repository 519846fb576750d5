package seal_test

import (
	"bytes"
	"encoding/hex"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/idem-go/idem/seal"
)

// The test vectors of https://c2sp.org/XAES-256-GCM: one for each branch in the derivation of the
// subkey.
func TestKey_IsXAES256GCM(t *testing.T) {
	t.Parallel()
	for _, vector := range []struct {
		secret            byte
		bound, ciphertext string
	}{
		{1, "", "ce546ef63c9cc60765923609b33a9a1974e96e52daf2fcf7075e2271"},
		{3, "c2sp.org/XAES-256-GCM", "986ec1832593df5443a179437fd083bf3fdb41abd740a21f71eb769d"},
	} {
		s := seal.New(seal.Keys{Primary: "k", Secrets: map[string][]byte{"k": secret(vector.secret)}})
		text := slices.Concat([]byte{1}, []byte("ABCDEFGHIJKLMNOPQRSTUVWX"), unhex(t, vector.ciphertext))
		if got, err := s.Open("k", text, []byte(vector.bound)); err != nil || string(got) != "XAES-256-GCM" {
			t.Errorf("secret %d: %q, %v", vector.secret, got, err)
		}
	}
}

// Under GODEBUG=fips140=only, the standard library rejects a nonce that the caller has chosen.
func TestSealer_WorksUnderFIPS140Only(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("not every system has it")
	}
	tests := []string{"TestSeal_HidesThePlainTextAndOpenReturnsIt", "TestKey_IsXAES256GCM"}
	cmd := exec.Command(os.Args[0], "-test.v", "-test.run=^("+strings.Join(tests, "|")+")$")
	cmd.Env = append(os.Environ(), "GODEBUG=fips140=only")
	out, err := cmd.CombinedOutput()
	for _, name := range tests {
		if err != nil || !bytes.Contains(out, []byte("--- PASS: "+name+" ")) {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

// frozen is plain, sealed with key "a" and bound by an earlier version. Databases hold such bytes.
const frozen = "01b1be860ed8e92cee28b7cc732bf4865ce8c070bdeb576903d4ee3cf9d9e994d61a70112a11c6b3dddb2dcd84f8b9872f9f463739"

func TestOpen_OpensTheFrozenFormat(t *testing.T) {
	t.Parallel()
	got, err := sealerOf("a").Open("a", unhex(t, frozen), bound)
	if err != nil || !bytes.Equal(got, plain) {
		t.Errorf("%q, %v", got, err)
	}
}

func unhex(t testing.TB, digits string) []byte {
	t.Helper()
	b, err := hex.DecodeString(digits)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
