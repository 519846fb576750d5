// Command show runs a small fleet on this machine, injects faults, moves a tenant, and checks the
// books. Run it with `make fleet`.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/idem-go/idem/example/fleet/patroni"
	"github.com/idem-go/idem/example/fleet/scene"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "fleet:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	if scene.IsCommand(os.Args[1:]) {
		return scene.Command(ctx, os.Args[1:])
	}
	runs := flag.Int("runs", 1, "how often each scenario is played")
	keys := flag.Int("keys", 100_000, "how many keys the tenant has that moves")
	limit := flag.Duration("limit", 10*time.Minute, "for how long all of it may take")
	only := flag.String("only", "", "play only scenarios whose name has this in it")
	flag.Parse()
	if flag.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flag.Arg(0))
	}
	ctx, cancel := context.WithTimeout(ctx, *limit)
	defer cancel()
	return play(ctx, *runs, *keys, *only)
}

func play(ctx context.Context, runs, keys int, only string) error {
	if err := patroni.Possible(); err != nil {
		return err
	}
	began := time.Now()
	fmt.Printf("starting etcd (3 nodes), Postgres under Patroni (west with 3 nodes, east with 2), a bank, and %d instances\n", scene.Instances)
	s, err := scene.Start(ctx, keys)
	if err != nil {
		return err
	}
	defer s.Close()
	fmt.Printf("%s has %d keys in west, %s is at home in east, %d clients each (%.0f s)\n\n", scene.Mover, keys, scene.Stays, scene.Clients, time.Since(began).Seconds())
	fmt.Printf("%-33s%9s%8s%9s%7s%6s%9s%12s  %s\n", "", "attempts", "orders", "charges", "bills", "lost", "doubled", "no answer", "verdict")
	failed := 0
	for range runs {
		for _, scene := range scene.All {
			if !strings.Contains(scene.Name, only) {
				continue
			}
			b, note, err := s.Perform(ctx, scene)
			verdict := "holds"
			if err != nil {
				verdict, failed = "FAILS: "+err.Error(), failed+1
			}
			fmt.Printf("%-33s%9d%8d%9d%7d%6d%9d%10.1f s  %s\n", scene.Name, b.Attempts, b.Orders, b.Charges, b.Bills, b.Lost, b.Doubled, b.Silence.Seconds(), verdict)
			if note != "" {
				fmt.Println("    " + note)
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
	}
	fmt.Printf("\n%.0f s\n", time.Since(began).Seconds())
	if failed > 0 {
		return fmt.Errorf("%d scenes do not hold", failed)
	}
	return nil
}
