// Command middlewares serves orders behind idempotency middlewares of other projects, so that
// idem-conform can check them. docs/conform.md has the results.
//
//	go -C lab/webtest run ./middlewares
package main

import (
	"fmt"
	"log"
	"sync/atomic"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/idempotency"
)

func main() {
	var orders atomic.Int64
	place := func(c fiber.Ctx) error {
		id := orders.Add(1)
		time.Sleep(20 * time.Millisecond) // so that requests overlap
		return c.Status(fiber.StatusCreated).JSON(fiber.Map{"order": id})
	}
	app := fiber.New()
	// Fiber uses the value of the header field as the key, including the quotes that the draft of
	// Idempotency-Key requires. Its own check therefore refuses a quoted UUID.
	app.Post("/fiber", idempotency.New(idempotency.Config{KeyHeader: "Idempotency-Key", KeyHeaderValidate: anyKey}), place)
	app.Post("/fiber-uuid", idempotency.New(idempotency.Config{KeyHeader: "Idempotency-Key"}), place)
	app.Post("/nothing", place)
	log.Fatal(app.Listen("127.0.0.1:8090"))
}

// anyKey accepts every key that is not too long, in place of Fiber's check for a UUID.
func anyKey(key string) error {
	if key == "" || len(key) > 255 {
		return fmt.Errorf("%w: %d characters", idempotency.ErrInvalidIdempotencyKey, len(key))
	}
	return nil
}
