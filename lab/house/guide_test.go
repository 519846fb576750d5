package house_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem/lab/pgtest"
)

// The program of the guide to operations prints what the block after it says.
func TestProgramOfTheOperationsGuideRuns(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("runs the compiler")
	}
	guide, dir := documents(t)["docs/operations.md"], t.TempDir()
	source, program := filepath.Join(dir, "main.go"), filepath.Join(dir, "program")
	write(t, source, blocks(guide, "go")[0])
	if out, err := exec.Command("go", "build", "-o", program, source).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), "DATABASE_URL="+pgtest.EmptyDSN(t))
	out, err := cmd.CombinedOutput()
	if diff := cmp.Diff(blocks(guide, "text")[0], string(out)); err != nil || diff != "" {
		t.Errorf("%v (-docs/operations.md +run)\n%s", err, diff)
	}
}
