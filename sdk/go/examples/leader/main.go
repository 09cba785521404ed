// Leader is one of many, of which one leads: go run ./examples/leader 10.0.0.7:9000 in several terminals.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	leasehold "leasehold.example/sdk/go"
)

func follow(ctx context.Context, election leasehold.Election) {
	for leader := range election.Observe(ctx) {
		if leader == nil {
			fmt.Println("leads: nobody")
		} else {
			fmt.Println("leads:", leader.Value)
		}
	}
}

func lead(ctx context.Context, election leasehold.Election, address string) error {
	leadership, err := election.Campaign(ctx, address)
	if err != nil {
		return err
	}
	defer leadership.ReleaseOnce(ctx)
	fmt.Println("elected with token", leadership.FencingToken())
	select {
	case <-time.After(200 * time.Millisecond):
		return leadership.Resign(ctx)
	case <-leadership.Context().Done():
		fmt.Println("deposed:", context.Cause(leadership.Context()))
		return nil
	}
}

func main() {
	address := "10.0.0.7:9000"
	if len(os.Args) > 1 {
		address = os.Args[1]
	}
	c, err := leasehold.FromEnv()
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	election := c.Election("scheduler", leasehold.TTL(10*time.Second))
	go follow(ctx, election)
	for range 2 {
		if err := lead(ctx, election, address); err != nil {
			log.Fatal(err)
		}
	}
}
