package webtest

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/go-chi/chi/v5"
	chimiddleware "github.com/go-chi/chi/v5/middleware"

	"github.com/idem-go/idem/idemhttp"
)

func humaAsAWhole(m *idemhttp.Middleware, place place) http.Handler {
	mux := http.NewServeMux()
	register(humago.New(mux, huma.DefaultConfig("carts", "1")), place)
	return recovering(m.Wrap(mux))
}

func humaOnAGroup(m *idemhttp.Middleware, place place) http.Handler {
	router := chi.NewRouter()
	router.Use(chimiddleware.Recoverer)
	router.Group(func(covered chi.Router) {
		covered.Use(m.Wrap)
		register(humachi.New(covered, huma.DefaultConfig("carts", "1")), place)
	})
	return router
}

// humaByItsMiddleware calls the handler with a context that answers outside of the transaction.
func humaByItsMiddleware(m *idemhttp.Middleware, place place) http.Handler {
	mux := http.NewServeMux()
	api := humago.New(mux, huma.DefaultConfig("carts", "1"))
	api.UseMiddleware(func(ctx huma.Context, next func(huma.Context)) {
		r, w := humago.Unwrap(ctx)
		m.Wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { next(huma.WithContext(ctx, r.Context())) })).ServeHTTP(w, r)
	})
	register(api, place)
	return mux
}

type humaItem struct {
	Cart string `path:"cart"`
	Body struct {
		SKU string `json:"sku"`
	}
}

type humaPlaced struct {
	Location string `header:"Location"`
	Body     []byte
}

func register(api huma.API, place place) {
	operation := huma.Operation{Method: http.MethodPost, Path: "/carts/{cart}/items", DefaultStatus: http.StatusCreated}
	huma.Register(api, operation, func(ctx context.Context, item *humaItem) (*humaPlaced, error) {
		placed, err := place.answer(ctx, item.Cart)
		if err != nil {
			return nil, err
		}
		return &humaPlaced{Location: placed.Header().Get("Location"), Body: placed.Body.Bytes()}, nil
	})
}
