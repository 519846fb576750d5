package idemhttp

import (
	"context"
	"reflect"
	"strings"
)

// routing is the state that chi keeps in the context of a request while it routes it. If Wrap is in
// front of a sub-router, a second run of the handler would begin with the state in which the first
// has ended, and take another route. So the state is copied before the first run, and restored
// before each further run.
type routing struct {
	state reflect.Value // a pointer to the state; invalid if there is none
	saved reflect.Value // a copy of the state
}

var valueContext = reflect.TypeOf(context.WithValue(context.Background(), attemptKey{}, nil))

// maxContexts limits how many nested contexts are searched.
const maxContexts = 64

// routingIn finds the state of chi in ctx. The context key is an unexported variable of chi, which
// this package must not import, so routingIn searches the nested contexts for a value of the type
// of the state. It does this with reflection on the context types of the standard library, and
// stops at a context of any other type.
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
