package operation

import (
	"fmt"
	"strings"

	"github.com/idem-go/idem/internal/store"
)

// maxNamed is how many steps a reason names.
const maxNamed = 20

// named names steps.
func named(steps []store.Step) string {
	var names []string
	for i := range steps[:min(len(steps), maxNamed)] {
		names = append(names, fmt.Sprintf("%s %q", steps[i].Kind, steps[i].Name))
	}
	if more := len(steps) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	last := len(names) - 1
	if last == 0 {
		return names[0]
	}
	return strings.Join(names[:last], ", ") + " and " + names[last]
}
