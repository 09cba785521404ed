package leasehold

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// Register is a register on the server that remembers the highest fencing token it has seen.
type Register struct {
	client *Client
	name   string
}

// Fence is the register of that name.
func (c *Client) Fence(name string) Register { return Register{c, name} }

// Accept shows a token, and returns which is the highest now; a [StaleFenceError] if a higher one was seen.
func (r Register) Accept(ctx context.Context, token uint64) (uint64, error) {
	said, err := r.client.API().AcceptFence(ctx, r.name, token)
	if err != nil {
		return 0, err
	}
	return tokenOf(said["high_water"]), nil
}

// HighWater is the highest token seen; zero if it has seen none.
func (r Register) HighWater(ctx context.Context) (uint64, error) {
	said, err := r.client.API().GetFence(ctx, r.name)
	if CodeOf(err) == "not_found" {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return tokenOf(said["high_water"]), nil
}

// Fence turns stale writers away, in this process: it remembers the highest fencing token it has seen. Its zero value has
// seen none.
type Fence struct {
	mu   sync.Mutex
	seen uint64
}

// Accept returns a [StaleFenceError] if a higher token was seen. It is to be asked in the same step as the write.
func (f *Fence) Accept(token uint64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if token < f.seen {
		detail := fmt.Sprintf("fencing token %d is stale: %d was seen", token, f.seen)
		return &StaleFenceError{&RefusedError{Code: "stale_fence", Detail: detail, Outcome: NotApplied}, f.seen}
	}
	f.seen = token
	return nil
}

// Election is an election under a name: whoever holds the lock of that name leads.
type Election struct {
	client  *Client
	name    string
	options []Option
}

// Election is the election of that name.
func (c *Client) Election(name string, options ...Option) Election {
	return Election{c, name, options}
}

// Leader is who leads.
type Leader struct {
	Owner        string
	Value        string
	FencingToken uint64
}

// Leadership is being elected, for as long as the lease stands.
type Leadership struct{ *Lease }

// Resign steps down, and returns when the next one can lead.
func (l *Leadership) Resign(ctx context.Context) error { return l.Release(ctx) }

// Campaign waits until it is elected. The value is what the others see, an address for instance.
func (e Election) Campaign(ctx context.Context, value string) (*Leadership, error) {
	options := append([]Option{Wait(Forever)}, e.options...)
	options = append(options, Metadata(JSON{"value": value}))
	lease, err := e.client.Lock(e.name, options...).Acquire(ctx)
	if err != nil {
		return nil, err
	}
	return &Leadership{lease}, nil
}

// Leader is who leads now; nil is nobody.
func (e Election) Leader(ctx context.Context) (*Leader, error) {
	said, err := e.client.API().Get(ctx, e.name)
	if err != nil {
		return nil, err
	}
	holders, _ := said["holders"].([]any)
	for _, one := range holders {
		holder, _ := one.(JSON)
		if state := holder["state"]; state == "held" || state == "recovering" {
			metadata, _ := holder["metadata"].(JSON)
			owner, _ := holder["owner_id"].(string)
			value, _ := metadata["value"].(string)
			return &Leader{owner, value, tokenOf(holder["fencing_token"])}, nil
		}
	}
	return nil, nil
}

// Observe tells who leads: at once for the first time, then whenever that has changed. Nil is nobody. The channel is closed
// with the context, and where the server refuses.
func (e Election) Observe(ctx context.Context) <-chan *Leader {
	leaders := make(chan *Leader)
	go func() {
		defer close(leaders)
		if err := e.observe(ctx, leaders); err != nil && ctx.Err() == nil && !errors.Is(err, ErrClosed) {
			slog.Warn("an election is not observed any more", "lock", e.name, "error", err)
		}
	}()
	return leaders
}

func (e Election) observe(ctx context.Context, leaders chan<- *Leader) error {
	// Watched before it is looked at, so that no change falls between the two.
	watch, err := e.client.Watch(ctx, e.name)
	if err != nil {
		return err
	}
	defer watch.Close()
	var last *Leader
	for isFirst := true; ; {
		leader, err := e.Leader(ctx)
		if isPassing(err) {
			if err := pause(ctx, watchPause); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		hasChanged := (leader == nil) != (last == nil) || leader != nil && *leader != *last
		if isFirst || hasChanged {
			isFirst, last = false, leader
			select {
			case leaders <- leader:
			case <-ctx.Done():
				return nil
			}
		}
		if _, err := watch.Next(ctx); err != nil {
			return err
		}
	}
}

// Mutex is a lock in the shape of [sync.Locker], for code that expects one. What such code cannot know is that the lock can
// be lost: Lease has the lease while it is held, and Unlock logs a loss.
type Mutex struct {
	lock  *Lock
	local sync.Mutex
	mu    sync.Mutex
	lease *Lease
}

var _ sync.Locker = (*Mutex)(nil)

// Mutex is the lock of that name in the shape of [sync.Locker].
func (c *Client) Mutex(name string, options ...Option) *Mutex {
	return &Mutex{lock: c.Lock(name, append(options, Wait(Forever))...)}
}

// Lock waits for ever. Where the lock can never be had, since the client is closed or the server refuses the name, it
// panics: it cannot return without.
func (m *Mutex) Lock() {
	m.local.Lock()
	for {
		lease, err := m.lock.Acquire(context.Background())
		if err == nil {
			m.set(lease)
			return
		}
		if !isPassing(err) {
			m.local.Unlock()
			panic(err)
		}
		slog.Warn("a lock is still waited for", "lock", m.lock.claims[0].Lock, "error", err)
		time.Sleep(watchPause)
	}
}

// TryLock says whether it was free.
func (m *Mutex) TryLock() bool {
	if !m.local.TryLock() {
		return false
	}
	lease, err := m.lock.TryAcquire(context.Background())
	if err != nil || lease == nil {
		m.local.Unlock()
		return false
	}
	m.set(lease)
	return true
}

func (m *Mutex) set(lease *Lease) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lease = lease
}

// Lease is the lease while it is held here; nil otherwise.
func (m *Mutex) Lease() *Lease {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lease
}

// Unlock gives it back.
func (m *Mutex) Unlock() {
	lease := m.Lease()
	if lease == nil {
		panic("leasehold: unlock of unlocked mutex")
	}
	m.set(nil)
	defer m.local.Unlock()
	if err := lease.Release(context.Background()); err != nil && !errors.Is(err, ErrClosed) {
		slog.Warn("a lock was lost before it was given back", "lock", lease.Name(), "error", err)
	}
}
