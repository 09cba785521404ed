// Bench does pairs of acquire and release, one after the other in each of some goroutines, for cargo xtask bench sdks.
//
// bench leasehold URL SECONDS WORKERS measures this SDK; redis in its place SET NX EX and a script that deletes, the commands
// of Redis lock libraries, over a bare connection for each goroutine. It prints pairs, seconds, and the processor seconds of
// this process.
package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	leasehold "leasehold.example/sdk/go"
)

const deleteOwn = `if redis.call("get",KEYS[1])==ARGV[1] then return redis.call("del",KEYS[1]) else return 0 end`

func ofLeasehold(url string) func(worker int) func() error {
	c, err := leasehold.New(url)
	if err != nil {
		log.Fatal(err)
	}
	return func(worker int) func() error {
		lock, ctx := c.Lock(fmt.Sprintf("bench/%d", worker)), context.Background()
		return func() error {
			lease, err := lock.Acquire(ctx)
			if err != nil {
				return err
			}
			return lease.Release(ctx)
		}
	}
}

func ofRedis(url string) func(worker int) func() error {
	return func(worker int) func() error {
		conn, err := net.Dial("tcp", strings.TrimPrefix(url, "redis://"))
		if err != nil {
			log.Fatal(err)
		}
		answers, key := bufio.NewReader(conn), fmt.Sprintf("bench/%d", worker)
		ask := func(words ...string) (string, error) {
			var out strings.Builder
			fmt.Fprintf(&out, "*%d\r\n", len(words))
			for _, word := range words {
				fmt.Fprintf(&out, "$%d\r\n%s\r\n", len(word), word)
			}
			if _, err := conn.Write([]byte(out.String())); err != nil {
				return "", err
			}
			return answers.ReadString('\n')
		}
		return func() error {
			value := make([]byte, 16)
			if _, err := rand.Read(value); err != nil {
				return err
			}
			token := hex.EncodeToString(value)
			if said, err := ask("SET", key, token, "NX", "EX", "30"); err != nil || said != "+OK\r\n" {
				return fmt.Errorf("set: %q, %v", said, err)
			}
			if said, err := ask("EVAL", deleteOwn, "1", key, token); err != nil || said != ":1\r\n" {
				return fmt.Errorf("del: %q, %v", said, err)
			}
			return nil
		}
	}
}

func processor() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		log.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

func main() {
	contenders := map[string]func(string) func(int) func() error{"leasehold": ofLeasehold, "redis": ofRedis}
	begin := contenders[os.Args[1]](os.Args[2])
	seconds, err := strconv.ParseFloat(os.Args[3], 64)
	workers, err2 := strconv.Atoi(os.Args[4])
	if err != nil || err2 != nil {
		log.Fatal(err, err2)
	}
	pairs := make([]func() error, workers)
	for worker := range workers {
		pairs[worker] = begin(worker)
		if err := pairs[worker](); err != nil {
			log.Fatal(err)
		}
	}
	began, cpu, counts := time.Now(), processor(), make([]int, workers)
	var all sync.WaitGroup
	for worker := range workers {
		all.Add(1)
		go func() {
			defer all.Done()
			for time.Since(began).Seconds() < seconds {
				if err := pairs[worker](); err != nil {
					log.Fatal(err)
				}
				counts[worker]++
			}
		}()
	}
	all.Wait()
	took, used, total := time.Since(began), processor()-cpu, 0
	for _, count := range counts {
		total += count
	}
	fmt.Println(total, took.Seconds(), used.Seconds())
}
