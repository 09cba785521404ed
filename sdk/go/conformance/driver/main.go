// Driver lets the harness of all SDKs drive this one: JSON lines in, JSON lines out. See sdk/README.md.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"

	leasehold "leasehold.example/sdk/go"
)

type line = map[string]any

// request is everything that a line can say.
type request struct {
	ID        int    `json:"id"`
	Op        string `json:"op"`
	Of        int    `json:"of"`
	Lock      string `json:"lock"`
	Locks     []leasehold.Claim
	Owner     string          `json:"owner"`
	TTL       int64           `json:"ttl_ms"`
	Wait      json.RawMessage `json:"wait_ms"`
	Shared    bool
	Permits   int
	Session   string
	Lease     string
	Heartbeat json.RawMessage
	Metadata  leasehold.JSON
	Attempts  int
	Sleep     int64 `json:"sleep_ms"`
	Value     string
	Fence     string
	Token     json.RawMessage
	Prefix    string
	After     *string
	Method    string
	Path      string
	Body      leasehold.JSON
	MS        int64
	Servers   string
	Namespace string
	CACert    string
	TokenFile string `json:"token_file"`
	Patience  int64  `json:"patience_ms"`
	FromEnv   bool   `json:"from_env"`
}

// driver is the state of one driven process: a client, and what it holds, by name.
type driver struct {
	clock  *leasehold.TestClock
	client *leasehold.Client

	output   sync.Mutex
	mu       sync.Mutex
	number   int
	leases   map[string]*leasehold.Lease
	sessions map[string]*leasehold.Session
	under    map[int]context.CancelFunc
}

func (d *driver) say(what line) {
	encoded, err := json.Marshal(what)
	if err != nil {
		encoded = []byte(fmt.Sprintf(`{"event":"bug","detail":%q}`, err))
	}
	d.output.Lock()
	defer d.output.Unlock()
	os.Stdout.Write(append(encoded, '\n'))
}

func ms(length time.Duration) float64 { return float64(length) / 1e6 }

func millis(of int64) time.Duration { return time.Duration(of) * time.Millisecond }

// said is an error as the harness reads it.
func said(err error) line {
	found := line{"kind": "bug", "detail": err.Error(), "outcome": leasehold.OutcomeOf(err)}
	if code := leasehold.CodeOf(err); code != "" {
		found["code"] = code
	}
	var held *leasehold.HeldError
	var deadlock *leasehold.DeadlockError
	var stale *leasehold.StaleFenceError
	var refused *leasehold.RefusedError
	var lost *leasehold.LeaseLostError
	var wrong *leasehold.UsageError
	switch {
	case errors.As(err, &held):
		found["kind"], found["retry_after_ms"] = "held", ms(held.RetryAfter)
		owners := []string{}
		for _, one := range held.Holders {
			owners = append(owners, one.OwnerID)
		}
		found["holders"] = owners
	case errors.As(err, &deadlock):
		found["kind"] = "deadlock"
		cycle := [][]string{}
		for _, one := range deadlock.Cycle {
			cycle = append(cycle, []string{one.Waiter, one.Lock, one.Blocker})
		}
		found["cycle"] = cycle
	case errors.As(err, &stale):
		found["kind"] = "stale_fence"
	case errors.As(err, &refused):
		found["kind"] = "refused"
	case errors.As(err, &lost):
		found["kind"], found["by"] = "lease_lost", lost.By
	case errors.Is(err, leasehold.ErrUnreachable):
		found["kind"] = "unreachable"
	case errors.As(err, &wrong):
		found["kind"] = "usage"
	case errors.Is(err, leasehold.ErrClosed):
		found["kind"] = "closed"
	case errors.Is(err, context.Canceled):
		found["kind"] = "cancelled"
	}
	return found
}

func (d *driver) name(letter string) string {
	d.number++
	return fmt.Sprintf("%s%d", letter, d.number)
}

// keep gives a lease a name, and tells what becomes of it.
func (d *driver) keep(lease *leasehold.Lease, session *leasehold.Session) line {
	d.mu.Lock()
	name := d.name("h")
	d.leases[name] = lease
	if session != nil {
		d.sessions[name] = session
	}
	d.mu.Unlock()
	// Only what does not hold the lease itself: it may be dropped.
	ctx, jeopardy, lost := lease.Context(), lease.Jeopardy(), lease.Lost()
	go d.follow(name, ctx, jeopardy, lost)
	return line{
		"lease": name, "token": lease.FencingToken(), "name": lease.Name(), "waited_ms": ms(lease.Waited()), "replayed": lease.IsReplayed(),
	}
}

func (d *driver) follow(name string, ctx context.Context, jeopardy, lost <-chan struct{}) {
	<-jeopardy
	<-ctx.Done()
	if errors.Is(context.Cause(ctx), leasehold.ErrReleased) {
		return
	}
	d.say(line{"event": "jeopardy", "lease": name})
	<-lost
	d.mu.Lock()
	lease := d.leases[name]
	d.mu.Unlock()
	var why *leasehold.LeaseLostError
	if lease != nil && errors.As(lease.Check(), &why) && why.By != leasehold.LostByRelease {
		d.say(line{"event": "lost", "lease": name, "by": why.By})
	}
}

func (d *driver) lease(r request) (*leasehold.Lease, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if lease := d.leases[r.Lease]; lease != nil {
		return lease, nil
	}
	return nil, fmt.Errorf("no lease %q", r.Lease)
}

func options(r request) []leasehold.Option {
	var found []leasehold.Option
	add := func(option leasehold.Option) { found = append(found, option) }
	if r.Owner != "" {
		add(leasehold.Owner(r.Owner))
	}
	if r.TTL != 0 && r.Session == "" {
		add(leasehold.TTL(millis(r.TTL)))
	}
	if string(r.Wait) == "null" {
		add(leasehold.Wait(leasehold.Forever))
	} else if len(r.Wait) > 0 {
		var wait int64
		_ = json.Unmarshal(r.Wait, &wait)
		add(leasehold.Wait(millis(wait)))
	}
	if r.Shared {
		add(leasehold.Shared())
	}
	if r.Permits != 0 {
		add(leasehold.Permits(r.Permits))
	}
	if r.Metadata != nil {
		add(leasehold.Metadata(r.Metadata))
	}
	if string(r.Heartbeat) == "false" {
		add(leasehold.WithoutHeartbeat())
	}
	return found
}

func (d *driver) lock(r request) *leasehold.Lock {
	d.mu.Lock()
	session := d.sessions[r.Session]
	d.mu.Unlock()
	for index, one := range r.Locks {
		if one.Mode == "exclusive" {
			r.Locks[index].Mode = ""
		}
	}
	switch {
	case session != nil && r.Locks != nil:
		return session.SetOf(r.Locks, options(r)...)
	case session != nil:
		return session.Lock(r.Lock, options(r)...)
	case r.Locks != nil:
		return d.client.SetOf(r.Locks, options(r)...)
	}
	return d.client.Lock(r.Lock, options(r)...)
}

func (d *driver) connect(r request) (line, error) {
	var given []leasehold.Option
	if r.Owner != "" {
		given = append(given, leasehold.Owner(r.Owner))
	}
	if r.Namespace != "" {
		given = append(given, leasehold.Namespace(r.Namespace))
	}
	if r.CACert != "" {
		given = append(given, leasehold.CACert(r.CACert))
	}
	var token string
	if json.Unmarshal(r.Token, &token) == nil && token != "" {
		given = append(given, leasehold.Token(token))
	}
	if r.TokenFile != "" {
		given = append(given, leasehold.TokenFile(r.TokenFile))
	}
	if r.Patience != 0 {
		given = append(given, leasehold.Patience(millis(r.Patience)))
	}
	if string(r.Heartbeat) == `"ttl/6"` {
		given = append(given, leasehold.HeartbeatEverySixth())
	}
	given = append(given, leasehold.WithClock(d.clock))
	var err error
	if r.FromEnv {
		d.client, err = leasehold.FromEnv(given...)
	} else {
		d.client, err = leasehold.New(r.Servers, given...)
	}
	return nil, err
}

func (d *driver) do(ctx context.Context, r request) (line, error) {
	switch r.Op {
	case "features":
		return line{"sdk": "go", "features": []string{"advance_clock", "keeps_while_blocked", "cancel", "cancels_work", "token_file"}}, nil
	case "connect":
		return d.connect(r)
	case "acquire":
		return d.acquire(ctx, r)
	case "try":
		lease, err := d.lock(r).TryAcquire(ctx)
		if err != nil || lease == nil {
			return line{"lease": nil}, err
		}
		return d.keep(lease, nil), nil
	case "session":
		session, err := d.client.Session(ctx, options(r)...)
		if err != nil {
			return nil, err
		}
		kept := d.keep(session.Lease, session)
		kept["number"] = session.Number()
		return kept, nil
	case "campaign":
		var given []leasehold.Option
		if r.Owner != "" {
			given = append(given, leasehold.Owner(r.Owner))
		}
		if r.TTL != 0 {
			given = append(given, leasehold.TTL(millis(r.TTL)))
		}
		lead, err := d.client.Election(r.Lock, given...).Campaign(ctx, r.Value)
		if err != nil {
			return nil, err
		}
		return d.keep(lead.Lease, nil), nil
	case "run":
		return d.run(ctx, r)
	case "observe":
		return d.observe(r)
	case "watch":
		return d.watch(r)
	case "fence":
		var token uint64
		if err := json.Unmarshal(r.Token, &token); err != nil {
			return nil, err
		}
		high, err := d.client.Fence(r.Fence).Accept(ctx, token)
		return line{"high_water": high}, err
	case "api":
		body, err := d.client.API().Raw(ctx, r.Method, r.Path, r.Body)
		return line{"body": body}, err
	case "advance_clock":
		d.clock.Advance(millis(r.MS))
		return nil, nil
	case "block":
		time.Sleep(millis(r.MS))
		return nil, nil
	case "close":
		return nil, d.client.Close()
	}
	return d.withLease(ctx, r)
}

func (d *driver) acquire(ctx context.Context, r request) (line, error) {
	lock := d.lock(r)
	var lease *leasehold.Lease
	var err error
	if r.Attempts > 0 {
		retry := leasehold.Retry{Attempts: r.Attempts, Pause: millis(20), PauseMax: millis(100)}
		lease, err = lock.AcquireWithRetry(ctx, retry)
	} else {
		lease, err = lock.Acquire(ctx)
	}
	if err != nil {
		return nil, err
	}
	return d.keep(lease, nil), nil
}

func (d *driver) withLease(ctx context.Context, r request) (line, error) {
	lease, err := d.lease(r)
	if err != nil {
		return nil, err
	}
	switch r.Op {
	case "release":
		return nil, lease.Release(ctx)
	case "release_once":
		return nil, lease.ReleaseOnce(ctx)
	case "renew":
		return nil, lease.Renew()
	case "wanted":
		select {
		case <-lease.Wanted():
			return nil, nil
		case <-lease.Jeopardy():
			return nil, lease.Check()
		}
	case "start_heartbeat":
		lease.StartHeartbeat()
		return nil, nil
	case "check":
		return nil, lease.Check()
	case "state":
		return line{"state": lease.State().String(), "time_left_ms": ms(lease.TimeLeft()), "time_to_work_ms": ms(lease.TimeToWork())}, nil
	case "verify":
		isValid, err := lease.Verify(ctx)
		return line{"valid": isValid}, err
	case "drop":
		d.mu.Lock()
		delete(d.leases, r.Lease)
		d.mu.Unlock()
		go func() {
			// The collector needs a look to find it, and another to finish it.
			for range 20 {
				runtime.GC()
				time.Sleep(10 * time.Millisecond)
			}
		}()
		return nil, nil
	}
	return nil, fmt.Errorf("no op %q", r.Op)
}

// run works under a lock: it sleeps for so long, in a body.
func (d *driver) run(ctx context.Context, r request) (line, error) {
	began := time.Now()
	err := d.lock(r).Do(ctx, func(ctx context.Context, lease *leasehold.Lease) error {
		d.say(line{"event": "running", "id": r.ID, "token": lease.FencingToken()})
		defer d.say(line{"event": "stopped", "id": r.ID})
		select {
		case <-time.After(millis(r.Sleep)):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	return line{"took_ms": ms(time.Since(began))}, err
}

func (d *driver) observe(r request) (line, error) {
	d.mu.Lock()
	name := d.name("o")
	d.mu.Unlock()
	leaders := d.client.Election(r.Lock).Observe(context.Background())
	go func() {
		for leader := range leaders {
			event := line{"event": "leader", "observer": name, "owner": nil}
			if leader != nil {
				event["owner"], event["value"], event["token"] = leader.Owner, leader.Value, leader.FencingToken
			}
			d.say(event)
		}
	}()
	return line{"observer": name}, nil
}

func (d *driver) watch(r request) (line, error) {
	after := ""
	if r.After != nil {
		after = *r.After
	}
	watch, err := d.client.WatchAfter(context.Background(), r.Prefix, after)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	name := d.name("w")
	d.mu.Unlock()
	go func() {
		for {
			event, err := watch.Next(context.Background())
			if err != nil {
				return
			}
			d.say(line{"event": "news", "watch": name, "type": event.Type, "lock": event.Lock, "cursor": event.Cursor})
		}
	}()
	return line{"watch": name}, nil
}

func (d *driver) answer(ctx context.Context, r request) {
	ok, err := d.do(ctx, r)
	d.mu.Lock()
	delete(d.under, r.ID)
	d.mu.Unlock()
	if err != nil {
		d.say(line{"id": r.ID, "err": said(err)})
		return
	}
	if ok == nil {
		ok = line{}
	}
	d.say(line{"id": r.ID, "ok": ok})
}

func (d *driver) cancel(r request) {
	d.mu.Lock()
	cancel := d.under[r.Of]
	d.mu.Unlock()
	if cancel != nil {
		cancel()
	}
	d.say(line{"id": r.ID, "ok": line{}})
}

func main() {
	d := &driver{
		clock: &leasehold.TestClock{}, leases: map[string]*leasehold.Lease{}, sessions: map[string]*leasehold.Session{},
		under: map[int]context.CancelFunc{},
	}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var r request
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			d.say(line{"id": r.ID, "err": line{"kind": "bug", "detail": err.Error()}})
			continue
		}
		if r.Op == "cancel" {
			d.cancel(r)
			continue
		}
		ctx, cancel := context.WithCancel(context.Background())
		d.mu.Lock()
		d.under[r.ID] = cancel
		d.mu.Unlock()
		go d.answer(ctx, r)
	}
}
