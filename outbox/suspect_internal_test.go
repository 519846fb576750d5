package outbox

import "testing"

// A destination whose calls fail by chance shows that by each message that it takes in the end: also by one that was found to be to blame, which counts
// attempts, and would die of that.
func TestFailuresOfAMessageThatIsPublishedInTheEndWereByChance(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		suspects map[int64]*suspect
		found    *lone
	}{
		"one that was suspected": {map[int64]*suspect{1: {misses: 8}}, nil},
		"one that was found":     {nil, &lone{misses: 8}},
	} {
		well := trial{suspects: test.suspects, fine: 20}
		if well.isUnwell() {
			t.Fatal("it is unwell before")
		}
		if well.outlive(1, test.found); !well.isUnwell() {
			t.Errorf("%s: it is taken to be well", name)
		}
	}
}
