package operation

import (
	"fmt"
	"runtime"
)

// escape is a panic of the function of a call, or the end of its goroutine.
type escape struct {
	panicked any
	stack    []byte
}

// again does in the goroutine of the operation's function what the function of the call has done in its own.
func (e *escape) again(name string) {
	switch {
	case e == nil:
	case e.panicked == nil:
		runtime.Goexit()
	default:
		if err, ok := e.panicked.(error); ok {
			panic(fmt.Errorf("operation: step %q has panicked: %w\n\n%s", name, err, e.stack))
		}
		panic(fmt.Sprintf("operation: step %q has panicked: %v\n\n%s", name, e.panicked, e.stack))
	}
}
