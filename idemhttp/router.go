package idemhttp

import (
	"context"
	"reflect"
	"strings"
)

// chi keeps the state of its routing in a value of the request's context, and changes it while it routes. If Wrap stands in front of a
// sub-router, a second run would begin where the first has ended, and go to another route. So the value is copied before the first run
// and put back before each further one.

// routing is what a router has in the context of a request.
type routing struct {
	state reflect.Value // a pointer to it; invalid if there is none
	saved reflect.Value // a copy of what it points to
}

var valueContext = reflect.TypeOf(context.WithValue(context.Background(), attemptKey{}, nil))

// deepest is how many contexts are looked through.
const deepest = 64

// routingIn finds the state by the type of the value: its key is a variable of package chi, which this package must not import. Behind a
// context of an unknown type it is not found.
func routingIn(ctx context.Context) routing {
	v := reflect.ValueOf(ctx)
	for range deepest {
		for v.Kind() == reflect.Interface {
			v = v.Elem()
		}
		if v.Kind() != reflect.Pointer || v.IsNil() || v.Type().Elem().Kind() != reflect.Struct || v.Type().Elem().PkgPath() != "context" {
			return routing{}
		}
		if v.Type() == valueContext {
			if state := v.Elem().FieldByName("val").Elem(); isChi(state) {
				state = reflect.NewAt(state.Type().Elem(), state.UnsafePointer())
				saved := reflect.New(state.Type().Elem()).Elem()
				saved.Set(state.Elem())
				return routing{state, saved}
			}
		}
		v = v.Elem()
		for v.Kind() == reflect.Struct { // timerCtx has a cancelCtx, which has a Context
			if v.NumField() == 0 {
				return routing{}
			}
			v = v.Field(0)
		}
	}
	return routing{}
}

func isChi(v reflect.Value) bool {
	return v.Kind() == reflect.Pointer && !v.IsNil() && v.Type().Elem().Name() == "Context" &&
		strings.HasPrefix(v.Type().Elem().PkgPath(), "github.com/go-chi/chi")
}

// restore puts the state back.
func (r routing) restore() {
	if r.state.IsValid() {
		r.state.Elem().Set(r.saved)
	}
}
