// Migrate works under a lock, step by step: go run ./examples/migrate in several terminals.
//
// It asks the server that LEASEHOLD_ADDR names, or the one at 127.0.0.1:8080.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	leasehold "leasehold.example/sdk/go"
)

func main() {
	var store leasehold.Fence // in the place of a database that compares fencing tokens
	c, err := leasehold.FromEnv()
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	lock := c.Lock("db/migrate", leasehold.TTL(30*time.Second), leasehold.Wait(10*time.Second))
	err = lock.Do(context.Background(), func(ctx context.Context, lease *leasehold.Lease) error {
		for step := range 3 {
			if err := lease.Check(); err != nil {
				return err
			}
			if err := store.Accept(lease.FencingToken()); err != nil {
				return err
			}
			fmt.Println("step", step, "with token", lease.FencingToken())
		}
		return nil
	})
	var held *leasehold.HeldError
	switch {
	case errors.As(err, &held):
		fmt.Println(held.Holders[0].OwnerID, "has it;", held.Waiters, "wait already")
	case errors.Is(err, leasehold.ErrLeaseLost):
		fmt.Println("stopped:", err)
	case err != nil:
		fmt.Println(err, leasehold.OutcomeOf(err))
	}
}
