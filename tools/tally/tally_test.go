package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTally(t *testing.T) {
	t.Parallel()
	const (
		pass = `{"Action":"pass","Package":"p","Test":"TestA"}` + "\n"
		fail = `{"Action":"output","Package":"p","Test":"TestB","Output":"want 1, got 2\n"}` + "\n" +
			`{"Action":"fail","Package":"p","Test":"TestB"}` + "\n" + `{"Action":"fail","Package":"p"}` + "\n"
		skip = `{"Action":"output","Package":"p","Test":"TestC","Output":"=== RUN   TestC\n"}` + "\n" +
			`{"Action":"output","Package":"p","Test":"TestC","Output":"    c_test.go:7: no database\n"}` + "\n" +
			`{"Action":"skip","Package":"p","Test":"TestC"}` + "\n"
		empty    = `{"Action":"skip","Package":"without/tests"}` + "\n"
		broken   = `{"ImportPath":"q","Action":"build-output","Output":"q.go:1: syntax error\n"}` + "\n" + `{"ImportPath":"q","Action":"build-fail"}` + "\n"
		panicked = `{"Action":"output","Package":"p","Test":"TestD","Output":"panic: oh\n"}` + "\n" + `{"Action":"fail","Package":"p"}` + "\n"
	)
	for _, test := range []struct {
		name, in, allowed string
		ok                bool
		want              []string
	}{
		{name: "all pass", in: pass + empty, ok: true, want: []string{"1 passed, 0 failed, 0 skipped\n"}},
		{name: "one fails", in: pass + fail, want: []string{"want 1, got 2", "p.TestB failed", "1 passed, 1 failed, 0 skipped\n"}},
		{name: "one is skipped", in: pass + skip, want: []string{"SKIP p.TestC: not allowed: c_test.go:7: no database", "1 passed, 0 failed, 1 skipped\n"}},
		{name: "an allowed skip", in: pass + skip, allowed: "# comment\n\np.TestC: only on Windows\n", ok: true, want: []string{"SKIP p.TestC: only on Windows", "1 passed, 0 failed, 1 skipped\n"}},
		{name: "another one allowed", in: pass + skip, allowed: "p.TestD: only on Windows\n", want: []string{"p.TestC was skipped"}},
		{name: "a package does not build", in: broken + pass, want: []string{"q.go:1: syntax error", "q does not build"}},
		{name: "a panic ends the package", in: pass + panicked, want: []string{"UNFINISHED p.TestD\npanic: oh", "p failed"}},
		{name: "nothing has run", in: empty, want: []string{"no test has run"}},
		{name: "other lines pass through", in: "make: hello\n" + pass + "no newline", ok: true, want: []string{"make: hello\n", "no newline"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			allow := filepath.Join(t.TempDir(), "allowed")
			if err := os.WriteFile(allow, []byte(test.allowed), 0o600); err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			ok, err := tally(strings.NewReader(test.in), &out, allow)
			if err != nil || ok != test.ok {
				t.Errorf("ok is %v, %v; want %v", ok, err, test.ok)
			}
			for _, want := range test.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("does not say %q:\n%s", want, out.String())
				}
			}
		})
	}
}

func TestAllowedSkipsNeedAReason(t *testing.T) {
	t.Parallel()
	allow := filepath.Join(t.TempDir(), "allowed")
	if err := os.WriteFile(allow, []byte("p.TestC\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := tally(strings.NewReader(""), &strings.Builder{}, allow); err == nil {
		t.Error("no error")
	}
}
