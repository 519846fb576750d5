package webtest

import (
	"context"
	"net/http"

	"github.com/idem-go/idem/idemhttp"
	"github.com/idem-go/idem/lab/webtest/oapi"
)

func oapiByItsMiddlewares(m *idemhttp.Middleware, place place) http.Handler {
	return recovering(oapi.HandlerWithOptions(oapi.NewStrictHandler(oapiCarts{place}, nil), oapi.StdHTTPServerOptions{
		Middlewares: []oapi.MiddlewareFunc{m.Wrap},
	}))
}

func oapiAsAWhole(m *idemhttp.Middleware, place place) http.Handler {
	return recovering(m.Wrap(oapi.Handler(oapi.NewStrictHandler(oapiCarts{place}, nil))))
}

// oapiCarts implements the service of oapi/carts.yaml.
type oapiCarts struct{ place place }

func (c oapiCarts) PlaceItem(ctx context.Context, r oapi.PlaceItemRequestObject) (oapi.PlaceItemResponseObject, error) {
	placed, err := c.place.answer(ctx, r.Cart)
	if err != nil {
		return nil, err
	}
	location := placed.Header().Get("Location")
	return oapi.PlaceItem201TextResponse{Body: placed.Body.String(), Headers: oapi.PlaceItem201ResponseHeaders{Location: &location}}, nil
}
