package main_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/idem-go/idem/lab/optional"
)

// A real shell runs the script and asks it for suggestions.
func TestCompletion_InBash(t *testing.T) {
	t.Parallel()
	bash := optional.Program(t, "bash")
	for line, want := range map[string]string{"st": "stats stuck", "list --sta": "--state", "list --state f": "failed", "migrate ": "down status up", "dead list --side ": "inbox outbox", "show a --re": "--reveal"} {
		words := strings.Split("idem "+line, " ")
		script := `source <(idem completion bash); COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _idem; echo "${COMPREPLY[*]}"`
		cmd := exec.Command(bash, append([]string{"-c", script, "bash"}, words...)...)
		cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(program)+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		if got := strings.TrimSpace(string(out)); err != nil || got != want {
			t.Errorf("%q: %q, %v; want %q", line, got, err, want)
		}
	}
}
