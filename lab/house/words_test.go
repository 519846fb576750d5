package house_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// nameless are words for an actor that has no name: a sentence says which caller, process, role or message it is.
var nameless = regexp.MustCompile(`(?i)\b(some` + `body|some` + `one|who` + `ever|no` + `body|any` + `body|every` + `body|sees ` + `to|see ` + `to it|be(comes|came|come) ` + `of)\b`)

// What has such a word and is no sentence of ours.
var named = []string{
	"idemtest/user_unix.go",    // the name of a user of Unix
	"webhook/verifier_test.go", // the secret of GitHub's own example
}

func TestSentencesNameTheirActor(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("git", "ls-files").Output()
	if err != nil {
		t.Skip("this is no clone")
	}
	for name := range strings.Lines(string(out)) {
		name = strings.TrimSpace(name)
		if strings.HasPrefix(name, "lab/") || name == "LICENSE" || isNamed(name) {
			continue // of what has no reader outside of this repository
		}
		text, err := os.ReadFile(filepath.FromSlash(name))
		if err != nil || !utf8.Valid(text) {
			continue
		}
		n := 0
		for line := range strings.Lines(string(text)) {
			n++
			if word := nameless.FindString(strings.ReplaceAll(line, "NoBody", "")); word != "" {
				t.Errorf("%s:%d: who is %q? Name the caller, the process, the role, the message", name, n, word)
			}
		}
	}
}

func isNamed(name string) bool { return slices.Contains(named, name) }
