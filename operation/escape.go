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

// again does in the goroutine of the operation's function what the function of the call has done in its own. The run is over, as inStep says.
func (e *escape) again(op *Op, name string) {
	if e == nil {
		return
	}
	_ = op.halt(broken, escaped(name))
	switch {
	case e.panicked == nil:
		runtime.Goexit()
	default:
		if err, ok := e.panicked.(error); ok {
			panic(fmt.Errorf("operation: step %q has panicked: %w\n\n%s", name, err, e.stack))
		}
		panic(fmt.Sprintf("operation: step %q has panicked: %v\n\n%s", name, e.panicked, e.stack))
	}
}

// escaped is why a run takes no further step whose step has panicked.
func escaped(name string) error {
	return fmt.Errorf("operation: step %q has panicked, and the function has recovered: what the step has done is looked at in another run", name)
}

// whole does what a step does. If that panics, or ends the goroutine, the run is over: a function that recovers can make nothing of a call
// that is in doubt, or of a Tx that is half done.
func whole[T any](op *Op, name string, do func() (T, error)) (T, error) {
	returned := false
	defer func() {
		if !returned {
			_ = op.halt(broken, escaped(name))
		}
	}()
	value, err := do()
	returned = true
	return value, err
}
