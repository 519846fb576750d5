package webtest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	chimiddleware "github.com/go-chi/chi/v5/middleware"
	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/adaptor"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/labstack/echo/v4"
	echomiddleware "github.com/labstack/echo/v4/middleware"

	"github.com/idem-go/idem/idemhttp"
	"github.com/idem-go/idem/lab/pgtest"
)

// place puts an item into a cart whose name the router has found in the path. If place returns an
// error, it has not answered.
type place func(w http.ResponseWriter, r *http.Request, cart string) error

// answer calls place for a handler that returns its answer.
func (p place) answer(ctx context.Context, cart string) (*httptest.ResponseRecorder, error) {
	w := httptest.NewRecorder()
	return w, p(w, (&http.Request{}).WithContext(ctx), cart)
}

// routers put the middleware in front of a route, in the usual way of each router. Each recovers
// from a panic.
var routers = map[string]func(*idemhttp.Middleware, place) http.Handler{
	"chi": func(m *idemhttp.Middleware, place place) http.Handler {
		router := chi.NewRouter()
		router.Use(chimiddleware.RequestID, chimiddleware.Recoverer, m.Wrap)
		router.Post("/carts/{cart}/items", chiHandler(place))
		return router
	},
	"chi, one route of a router below another": func(m *idemhttp.Middleware, place place) http.Handler {
		below := chi.NewRouter()
		below.With(m.Wrap).Post("/{cart}/items", chiHandler(place))
		router := chi.NewRouter()
		router.Use(chimiddleware.Recoverer)
		router.Mount("/carts", below)
		return router
	},
	"chi, in front of routers below": func(m *idemhttp.Middleware, place place) http.Handler {
		items := chi.NewRouter()
		items.Post("/items", chiHandler(place))
		below := chi.NewRouter()
		below.Mount("/{cart}", items)
		router := chi.NewRouter()
		router.Use(chimiddleware.Recoverer, chimiddleware.Timeout(time.Minute), m.Wrap)
		router.Mount("/carts", below)
		return router
	},
	"chi, the handler form": func(m *idemhttp.Middleware, place place) http.Handler {
		router := chi.NewRouter()
		router.Use(chimiddleware.Recoverer)
		router.Method(http.MethodPost, "/carts/{cart}/items", m.Handle(
			func(_ pgx.Tx, w http.ResponseWriter, r *http.Request) error {
				return place(w, r, chi.URLParam(r, "cart"))
			}))
		return router
	},
	"echo": func(m *idemhttp.Middleware, place place) http.Handler {
		router := echo.New()
		router.HTTPErrorHandler = failing(router)
		router.Use(echomiddleware.Recover(), wrapEcho(m))
		router.POST("/carts/:cart/items", echoHandler(place))
		return router
	},
	"chi, as a whole": func(m *idemhttp.Middleware, place place) http.Handler {
		router := chi.NewRouter()
		router.Use(chimiddleware.Recoverer)
		router.Post("/carts/{cart}/items", chiHandler(place))
		return m.Wrap(router)
	},
	"gin, as a whole": func(m *idemhttp.Middleware, place place) http.Handler {
		router := gin.New() // not gin.Default, whose Recovery would be inside of the middleware
		router.POST("/carts/:cart/items", func(c *gin.Context) {
			if err := place(c.Writer, c.Request, c.Param("cart")); err != nil {
				panic(err)
			}
		})
		return recovering(m.Wrap(router))
	},
	"net/http, some routes of any router": func(m *idemhttp.Middleware, place place) http.Handler {
		router := echo.New()
		router.HTTPErrorHandler = failing(router)
		router.Use(echomiddleware.Recover())
		router.POST("/carts/:cart/items", echoHandler(place))
		routes := http.NewServeMux()
		routes.Handle("/", router)
		routes.Handle("POST /carts/", m.Wrap(router))
		return routes
	},
	"echo, as a whole": func(m *idemhttp.Middleware, place place) http.Handler { // possible with any router that is an http.Handler
		router := echo.New()
		router.HTTPErrorHandler = failing(router)
		router.Use(echomiddleware.Recover())
		router.POST("/carts/:cart/items", echoHandler(place))
		return m.Wrap(router)
	},
	"huma, as a whole":                 humaAsAWhole,
	"huma, on a group of chi's routes": humaOnAGroup,
	"oapi-codegen, as a whole":         oapiAsAWhole,
	"oapi-codegen, by its middlewares": oapiByItsMiddlewares,
}

// recovering answers 500 if a handler has panicked. The server of net/http would end the
// connection.
func recovering(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if recover() != nil {
				w.WriteHeader(http.StatusInternalServerError)
			}
		}()
		next.ServeHTTP(w, r)
	})
}

func chiHandler(place place) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := place(w, r, chi.URLParam(r, "cart")); err != nil {
			http.Error(w, "failed", http.StatusInternalServerError)
		}
	}
}

func echoHandler(place place) echo.HandlerFunc {
	return func(c echo.Context) error { return place(c.Response(), c.Request(), c.Param("cart")) }
}

// wrapEcho is used in place of echo.WrapMiddleware. With wrapEcho, an error of the handler is
// answered inside the middleware, before the transaction ends. After a panic, wrapEcho restores the
// response outside of the middleware, so that an answer to the panic goes to the client.
func wrapEcho(m *idemhttp.Middleware) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			outside := c.Response()
			m.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				c.SetRequest(r)
				c.SetResponse(echo.NewResponse(w, c.Echo()))
				defer c.SetResponse(outside)
				if err := next(c); err != nil {
					c.Error(err)
				}
			})).ServeHTTP(outside, c.Request())
			return nil
		}
	}
}

// failing replaces a success that Echo's handler has answered by a later error. Echo would leave
// the success.
func failing(e *echo.Echo) echo.HTTPErrorHandler {
	return func(err error, c echo.Context) {
		if answer := c.Response(); answer.Committed && answer.Status < http.StatusBadRequest {
			answer.Writer.WriteHeader(http.StatusInternalServerError)
			return
		}
		e.DefaultHTTPErrorHandler(err, c)
	}
}

// A retry is replayed, a path with another value is another request, and a second run, after the
// first was rolled back at its COMMIT as by a serialization failure, is like the first.
func TestRouters_RetryIsReplayed(t *testing.T) {
	t.Parallel()
	for name, build := range routers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCarts(t, build)
			if _, err := c.pool.Exec(t.Context(), `
				CREATE SEQUENCE runs;
				CREATE FUNCTION fail_once() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
					IF nextval('runs') = 1 THEN RAISE SQLSTATE '40001'; END IF;
					RETURN NULL;
				END $$;
				CREATE CONSTRAINT TRIGGER fail_once AFTER INSERT ON items DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION fail_once()`); err != nil {
				t.Fatal(err)
			}
			first, again := c.post("/carts/blue/items", "k"), c.post("/carts/blue/items", "k")
			if first.Code != http.StatusCreated || first.Header().Get("Location") != "/carts/blue/items/2" {
				t.Errorf("answered %d, Location %q; want 201 and the cart of the path", first.Code, first.Header().Get("Location"))
			}
			if again.Header().Get("Idempotency-Replayed") != "true" || again.Code != first.Code || again.Body.String() != first.Body.String() ||
				again.Header().Get("Location") != first.Header().Get("Location") {
				t.Errorf("answered %d %v %q, and to the retry %d %v %q", first.Code, first.Header(), first.Body, again.Code, again.Header(), again.Body)
			}
			if other := c.post("/carts/red/items", "k"); other.Code != http.StatusUnprocessableEntity {
				t.Errorf("another cart with the same key was answered %d %s, want 422", other.Code, other.Body)
			}
			c.wantItems(1)
		})
	}
}

func TestRouters_FailureCommitsNothing(t *testing.T) {
	t.Parallel()
	for name, build := range routers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCarts(t, build)
			for n, cart := range []string{"panics", "fails", "panics-late", "fails-late"} {
				c.broken = true
				if failed := c.post("/carts/"+cart+"/items", cart); failed.Code != http.StatusInternalServerError {
					t.Errorf("%s: answered %d, want 500", cart, failed.Code)
				}
				c.wantItems(n)
				c.broken = false
				if retry := c.post("/carts/"+cart+"/items", cart); retry.Code != http.StatusCreated || retry.Header().Get("Idempotency-Replayed") != "" {
					t.Errorf("%s: the retry was answered %d %v, want 201 and no replay", cart, retry.Code, retry.Header())
				}
				c.wantItems(n + 1)
			}
		})
	}
}

// carts is a service behind a router.
type carts struct {
	t       *testing.T
	pool    *pgxpool.Pool
	handler http.Handler
	broken  bool // "panics" and "fails" do so after the write; the late carts do so after their answer
}

func newCarts(t *testing.T, build func(*idemhttp.Middleware, place) http.Handler) *carts {
	t.Helper()
	c := &carts{t: t, pool: pgtest.New(t)}
	if _, err := c.pool.Exec(t.Context(), `CREATE TABLE items (id serial, cart text)`); err != nil {
		t.Fatal(err)
	}
	m, err := idemhttp.New(c.pool, idemhttp.Config{Scope: func(*http.Request) (string, error) { return "carts", nil }})
	if err != nil {
		t.Fatal(err)
	}
	c.handler = build(m, c.place)
	return c
}

func (c *carts) place(w http.ResponseWriter, r *http.Request, cart string) error {
	var id int
	err := idemhttp.Tx(r.Context()).QueryRow(r.Context(), `INSERT INTO items (cart) VALUES ($1) RETURNING id`, cart).Scan(&id)
	switch {
	case err != nil:
		return err
	case c.broken && cart == "panics":
		panic("broken")
	case c.broken && cart == "fails":
		return errors.New("broken")
	}
	w.Header().Set("Location", fmt.Sprintf("/carts/%s/items/%d", cart, id))
	w.WriteHeader(http.StatusCreated)
	_, err = fmt.Fprintf(w, "item %d\n", id)
	switch {
	case c.broken && cart == "panics-late":
		panic("broken")
	case c.broken && cart == "fails-late":
		return errors.New("broken")
	}
	return err
}

func (c *carts) post(path, key string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(`{"sku":"teapot"}`))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", key)
	w := httptest.NewRecorder()
	c.handler.ServeHTTP(w, r)
	return w
}

func (c *carts) wantItems(want int) {
	c.t.Helper()
	var got int
	if err := c.pool.QueryRow(c.t.Context(), `SELECT count(*) FROM items`).Scan(&got); err != nil || got != want {
		c.t.Errorf("%d items, %v; want %d", got, err, want)
	}
}

// The obvious way with gin and fiber calls the handler so that the middleware does not see the
// answer.
func TestRouters_HiddenAnswerIsRefused(t *testing.T) {
	t.Parallel()
	obvious := map[string]func(*idemhttp.Middleware, place) http.Handler{
		"huma, by its own middleware": humaByItsMiddleware,
		"gin, in front of one route": func(m *idemhttp.Middleware, place place) http.Handler {
			router := gin.New()
			router.POST("/carts/:cart/items", func(c *gin.Context) {
				m.Wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					c.Request = r
					c.Next()
				})).ServeHTTP(c.Writer, c.Request)
			}, func(c *gin.Context) { _ = place(c.Writer, c.Request, c.Param("cart")) })
			return router
		},
		"fiber, by its adaptor": func(m *idemhttp.Middleware, place place) http.Handler {
			app := fiber.New()
			app.Use(adaptor.HTTPMiddleware(func(next http.Handler) http.Handler {
				covered := m.Wrap(next)
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					// The adaptor's context is fiber's own, and the next request reuses it.
					covered.ServeHTTP(w, r.WithContext(context.WithoutCancel(r.Context())))
				})
			}))
			app.Post("/carts/:cart/items", func(c fiber.Ctx) error { return c.SendStatus(http.StatusCreated) })
			return adaptor.FiberApp(app)
		},
	}
	for name, build := range obvious {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCarts(t, build)
			for range 2 {
				if answer := c.post("/carts/blue/items", "k"); answer.Header().Get("Idempotency-Replayed") != "" {
					t.Errorf("the answer is a replay: %d %q", answer.Code, answer.Body)
				}
			}
			c.wantItems(0)
		})
	}
}
