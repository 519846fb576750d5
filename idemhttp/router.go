package idemhttp

import (
	"context"
	"reflect"
	"strings"
)

// routing is the state that the router chi keeps in the context of a request. If Wrap is in front
// of a sub-router, each run of the handler changes this state. A second run would begin with the
// changed state and take another route. So the state is copied before the first run, and restored
// before each further run.
type routing struct {
	state reflect.Value // a pointer to the state; the zero Value if chi is not used
	saved reflect.Value // a copy of the state
}

var valueContext = reflect.TypeOf(context.WithValue(context.Background(), attemptKey{}, nil))

// maxContexts limits how many nested contexts routingIn searches.
const maxContexts = 64

// routingIn finds the state of chi in ctx. The context key is a variable of package chi, and this
// package must not import chi. So routingIn searches the nested contexts for a value of the type
// chi.Context. It uses reflection on the context types of the standard library, and stops at a
// context of any other type.
func routingIn(ctx context.Context) routing {
	v := reflect.ValueOf(ctx)
	for range maxContexts {
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
		for v.Kind() == reflect.Struct { // a timerCtx embeds a cancelCtx, which embeds a Context
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

// restore sets the state back to the copy.
func (r routing) restore() {
	if r.state.IsValid() {
		r.state.Elem().Set(r.saved)
	}
}
