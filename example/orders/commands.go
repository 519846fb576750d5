package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/idem-go/idem/example/orders/bank"
	"github.com/idem-go/idem/example/orders/broker"
	"github.com/idem-go/idem/example/orders/demo"
	"github.com/idem-go/idem/webhook"
)

// commands maps the name of each command to its function.
var commands = map[string]func(ctx context.Context, args []string, stdout, stderr io.Writer) error{
	"serve": serveCommand, "demo": demoCommand, "service": serviceCommand, "bank": bankCommand, "broker": brokerCommand,
	"fulfilment": fulfilmentCommand,
}

// parse parses flags from args. It returns errUsage if there are other arguments.
func parse(flags *flag.FlagSet, args []string, stderr io.Writer) error {
	flags.SetOutput(stderr)
	if err := flags.Parse(args); err != nil {
		return errors.Join(errUsage, err)
	}
	if flags.NArg() > 0 {
		return errUsage
	}
	return nil
}

const anyPort = "127.0.0.1:0"

func serveCommand(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("orders serve", flag.ContinueOnError)
	listen := flags.String("listen", cmp.Or(os.Getenv("ORDERS_LISTEN"), "127.0.0.1:8080"),
		"`address` to listen on, also from ORDERS_LISTEN; port 0 picks one")
	slow := flags.Duration("slow", bank.DefaultSlow, "how long a slow answer of the bank takes")
	if err := parse(flags, args, stderr); err != nil {
		return err
	}
	databaseURL, err := setting("DATABASE_URL")
	if err != nil {
		return err
	}
	return serve(ctx, databaseURL, *listen, *slow, stdout)
}

func serviceCommand(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("orders service", flag.ContinueOnError)
	listen := flags.String("listen", anyPort, "`address` to listen on")
	if err := parse(flags, args, stderr); err != nil {
		return err
	}
	var at addresses
	err := settings(map[string]*string{
		"DATABASE_URL": &at.database, "BANK_URL": &at.bank, "BROKER_URL": &at.broker, "WEBHOOK_SECRET": &at.webhookSecret,
	})
	if err != nil {
		return err
	}
	return runService(ctx, at, *listen, stdout)
}

func brokerCommand(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("orders broker", flag.ContinueOnError)
	listen := flags.String("listen", anyPort, "`address` to listen on")
	store := flags.String("store", "", "`directory` for the messages")
	if err := parse(flags, args, stderr); err != nil {
		return err
	}
	if *store == "" {
		return errUsage
	}
	b, err := broker.Start(ctx, *listen, *store)
	if err != nil {
		return err
	}
	defer b.Stop()
	fmt.Fprintf(stdout, "listening on %s\n", b.URL())
	<-ctx.Done()
	return nil
}

func fulfilmentCommand(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("orders fulfilment", flag.ContinueOnError)
	listen := flags.String("listen", anyPort, "`address` to listen on")
	if err := parse(flags, args, stderr); err != nil {
		return err
	}
	var databaseURL, brokerURL, shopURL, secret string
	err := settings(map[string]*string{
		"FULFILMENT_DATABASE_URL": &databaseURL, "BROKER_URL": &brokerURL, "SHOP_URL": &shopURL, "WEBHOOK_SECRET": &secret,
	})
	if err != nil {
		return err
	}
	shop := webhook.Endpoint{URL: shopURL + "/webhooks/fulfilment", Secrets: []string{secret}}
	return runFulfilment(ctx, databaseURL, brokerURL, shop, *listen, stdout)
}

func bankCommand(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("orders bank", flag.ContinueOnError)
	listen := flags.String("listen", anyPort, "`address` to listen on")
	slow := flags.Duration("slow", bank.DefaultSlow, "how long a slow answer takes")
	if err := parse(flags, args, stderr); err != nil {
		return err
	}
	return listenAndServe(ctx, *listen, bank.New(*slow), stdout, "")
}

func demoCommand(ctx context.Context, args []string, stdout, _ io.Writer) error {
	if len(args) > 0 {
		return errUsage
	}
	databaseURL, err := setting("DATABASE_URL")
	if err != nil {
		return err
	}
	fulfilmentURL, err := fulfilmentDatabase(ctx, databaseURL)
	if err != nil {
		return err
	}
	orders, err := os.Executable()
	if err != nil {
		return err
	}
	return demo.Run(ctx, demo.Config{
		Command:               func(part string) []string { return []string{orders, part} },
		DatabaseURL:           databaseURL,
		FulfilmentDatabaseURL: fulfilmentURL,
		WebhookSecret:         newSecret(),
		Out:                   stdout,
	})
}

// newSecret returns a random secret for signing webhooks.
func newSecret() string {
	key := make([]byte, 32)
	rand.Read(key) // rand.Read never returns an error
	return "whsec_" + base64.StdEncoding.EncodeToString(key)
}

// settings reads environment variables into the given strings. It fails if a variable is not set.
func settings(into map[string]*string) (err error) {
	for name, value := range into {
		if *value, err = setting(name); err != nil {
			return err
		}
	}
	return nil
}

// setting returns an environment variable. It fails if the variable is not set.
func setting(name string) (string, error) {
	if value := os.Getenv(name); value != "" {
		return value, nil
	}
	return "", fmt.Errorf("%s is not set: `make serve` and `make demo` set it and start Postgres", name)
}
