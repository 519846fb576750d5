package idemclient_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/idem-go/idem/idemclient"
)

// storedOrder is an order in the program's storage, with the key and the body of its request.
type storedOrder struct {
	Body    string
	Key     string
	KeyMade time.Time
}

// The key is made once, and stored with the order before the order is first sent. A later run of
// the program that finds the order without an answer sends the same request with the same key, and
// the order is placed once.
func Example() {
	server := orders() // places one order for each key, and loses its first answer
	defer server.Close()
	file, err := os.CreateTemp("", "order") // stands in for the program's database
	if err != nil {
		log.Fatal(err)
	}
	defer os.Remove(file.Name())

	// The first run makes the key, stores it with the order, and sends. It ends before it has an
	// answer.
	stored := storedOrder{Body: `{"sku":"teapot"}`, Key: idemclient.NewKey(), KeyMade: time.Now()}
	if err := json.NewEncoder(file).Encode(stored); err != nil {
		log.Fatal(err)
	}
	ctx := idemclient.WithKeyMadeAt(context.Background(), stored.Key, stored.KeyMade)
	killed := &http.Client{Transport: &idemclient.Transport{MaxAttempts: 1}} // stands in for a program that is killed
	if _, err := place(ctx, killed, server.URL, stored.Body); err != nil {
		fmt.Println("first run: no answer")
	}

	// The next run finds the order without an answer. It may have been placed, so it is sent again
	// with its key.
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		log.Fatal(err)
	}
	var found storedOrder
	if err := json.NewDecoder(file).Decode(&found); err != nil {
		log.Fatal(err)
	}
	ctx = idemclient.WithKeySentBefore(context.Background(), found.Key, found.KeyMade)
	answer, err := place(ctx, idemclient.NewClient(nil), server.URL, found.Body)
	if err != nil {
		log.Fatal(err) // the next run tries again, until errors.Is(err, idemclient.ErrKeyTooOld)
	}
	fmt.Println("next run:", answer)
	// Output:
	// first run: no answer
	// next run: 201 {"order":1}
}

// place sends an order, under the key in ctx.
func place(ctx context.Context, client *http.Client, url, body string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	return fmt.Sprintf("%d %s", resp.StatusCode, answer), err
}
