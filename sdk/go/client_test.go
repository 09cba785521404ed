package leasehold

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// fake is a server of one lock, as far as tests need one.
type fake struct {
	*httptest.Server
	mu       sync.Mutex
	asked    []JSON
	paths    []string
	isSilent bool
	// isHeld: another owner has the lock.
	isHeld bool
	isOver bool
	cuts   int
}

func newFake(t *testing.T) *fake {
	f := &fake{}
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Server.Close)
	return f
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body JSON
	_ = json.NewDecoder(r.Body).Decode(&body)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked, f.paths = append(f.asked, body), append(f.paths, r.URL.Path)
	say := func(status int, said JSON) {
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(said)
	}
	verb := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
	switch {
	case verb == "version":
		say(200, JSON{"api": []string{"v1"}})
	case f.cuts > 0 && verb == "acquire":
		f.cuts--
		panic(http.ErrAbortHandler)
	case f.isSilent:
		panic(http.ErrAbortHandler)
	case f.isOver && verb != "acquire":
		say(409, JSON{"code": "lease_lost", "outcome": "not_applied"})
	case f.isHeld && verb == "acquire":
		say(409, JSON{"code": "lock_held", "outcome": "not_applied", "recommended_retry_ms": 1, "ticket": "t", "holders": []JSON{{"owner_id": "other"}}})
	case verb == "acquire":
		say(200, JSON{"lease_id": "l", "fencing_token": 33, "lock": "a", "ttl_ms": body["ttl_ms"], "expires_in_ms": body["ttl_ms"], "epoch": 1})
	case verb == "renew":
		say(200, JSON{"ttl_ms": 300, "expires_in_ms": 300})
	default:
		say(200, JSON{})
	}
}

func (f *fake) set(how func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	how()
}

func (f *fake) of(verb string) []JSON {
	f.mu.Lock()
	defer f.mu.Unlock()
	var found []JSON
	for index, path := range f.paths {
		if strings.HasSuffix(path, "/"+verb) {
			found = append(found, f.asked[index])
		}
	}
	return found
}

func client(t *testing.T, servers string, options ...Option) *Client {
	t.Helper()
	c, err := New(servers, append([]Option{Patience(2 * time.Second)}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// The example of the specification: acquire with retries, keep it alive, work, give it back once.
func TestTheExampleOfTheSpecification(t *testing.T) {
	f, ctx := newFake(t), context.Background()
	f.isHeld = true
	time.AfterFunc(30*time.Millisecond, func() { f.set(func() { f.isHeld = false }) })
	c := client(t, f.URL)
	lock := c.Lock("a", Owner("worker-1"), TTL(300*time.Millisecond), WithoutHeartbeat())
	lease, err := lock.AcquireWithRetry(ctx, Retry{Attempts: 1000})
	if err != nil {
		t.Fatal(err)
	}
	defer lease.ReleaseOnce(ctx)
	errs := lease.StartHeartbeat()
	if lease.FencingToken() != 33 || lease.FencingTokenValue() != 33 || lease.Check() != nil {
		t.Error(lease)
	}
	for len(f.of("renew")) < 2 {
		select {
		case err := <-errs:
			t.Fatal(err)
		case <-lease.Jeopardy():
			t.Fatal("a lease that is kept alive is in jeopardy")
		case <-time.After(time.Millisecond):
		}
	}
	if err := lease.Release(ctx); err != nil {
		t.Error(err)
	}
	if err, isOpen := <-errs; isOpen {
		t.Error(err)
	}
	if err := lease.ReleaseOnce(ctx); err != nil {
		t.Error(err)
	}
	if !errors.Is(lease.Check(), ErrReleased) || context.Cause(lease.Context()) != ErrReleased {
		t.Error(lease.Check())
	}
}

func TestARequestIsRepeatedUnderItsID(t *testing.T) {
	f := newFake(t)
	f.cuts = 2
	lease, err := client(t, f.URL).Lock("a").Acquire(context.Background())
	if err != nil || lease.FencingToken() != 33 {
		t.Fatal(lease, err)
	}
	tries := f.of("acquire")
	if len(tries) != 3 || tries[0]["request_id"] != tries[2]["request_id"] || len(tries[0]["request_id"].(string)) != 32 {
		t.Error(tries)
	}
}

func TestWorkIsToldToStopAtHalfOfTheTTL(t *testing.T) {
	f := newFake(t)
	began := time.Now()
	err := client(t, f.URL).Lock("a", TTL(400*time.Millisecond)).Do(context.Background(), func(ctx context.Context, lease *Lease) error {
		f.set(func() { f.isSilent = true })
		<-ctx.Done()
		if took := time.Since(began); took < 150*time.Millisecond || took > 390*time.Millisecond {
			t.Errorf("told to stop after %v", took)
		}
		if context.Cause(ctx) != ErrJeopardy || lease.State() != InJeopardy {
			t.Error(context.Cause(ctx), lease)
		}
		f.set(func() { f.isSilent = false })
		return ctx.Err()
	})
	if !errors.Is(err, ErrLeaseLost) {
		t.Error(err)
	}
}

func TestARefusedHeartbeatEndsTheLease(t *testing.T) {
	f := newFake(t)
	lease, err := client(t, f.URL).Lock("a", TTL(300*time.Millisecond)).Acquire(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	f.set(func() { f.isOver = true })
	<-lease.Lost()
	var lost *LeaseLostError
	if err := lease.Check(); !errors.As(err, &lost) || lost.By != LostByServer || CodeOf(err) != "lease_lost" {
		t.Error(err)
	}
}

func TestWhoSleptKnowsAtOnce(t *testing.T) {
	clock := &TestClock{}
	lease, err := client(t, newFake(t).URL, WithClock(clock)).Lock("a").Acquire(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	clock.Advance(16 * time.Second)
	if !errors.Is(lease.Check(), ErrJeopardy) || lease.TimeToWork() != 0 {
		t.Error(lease)
	}
	clock.Advance(15 * time.Second)
	if err := lease.Check(); !errors.Is(err, ErrLeaseLost) || errors.Is(err, ErrJeopardy) {
		t.Error(err)
	}
}

func TestHeldIsNotUnreachable(t *testing.T) {
	f, ctx := newFake(t), context.Background()
	f.isHeld = true
	c := client(t, f.URL)
	if lease, err := c.Lock("a").TryAcquire(ctx); lease != nil || err != nil {
		t.Error(lease, err)
	}
	var held *HeldError
	_, err := c.Lock("a").Acquire(ctx)
	if !errors.As(err, &held) || held.Holders[0].OwnerID != "other" || OutcomeOf(err) != NotApplied || errors.Is(err, ErrUnreachable) {
		t.Error(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := listener.Addr().String()
	listener.Close()
	_, err = client(t, nobody, Patience(100*time.Millisecond)).Lock("a").Acquire(ctx)
	if !errors.Is(err, ErrUnreachable) || OutcomeOf(err) != NotApplied || errors.As(err, &held) {
		t.Error(err)
	}
}

func TestACanceledWaitLeavesNothingBehind(t *testing.T) {
	f := newFake(t)
	f.isHeld = true
	ctx, cancel := context.WithCancel(context.Background())
	c := client(t, f.URL)
	time.AfterFunc(20*time.Millisecond, cancel)
	if _, err := c.Lock("a", Wait(Forever)).Acquire(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	f.set(func() { f.isHeld = false })
	c.Close()
	if _, err := c.Lock("a").Acquire(context.Background()); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

func TestCloseGivesEverythingBack(t *testing.T) {
	f := newFake(t)
	c := client(t, f.URL)
	lease, err := c.Lock("a").Acquire(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if len(f.of("release")) != 1 || !errors.Is(lease.Check(), ErrReleased) {
		t.Error(f.paths, lease.Check())
	}
}

func TestAMutexIsASyncLocker(t *testing.T) {
	f := newFake(t)
	m := client(t, f.URL).Mutex("a")
	m.Lock()
	if m.Lease().FencingToken() != 33 || m.TryLock() {
		t.Error(m.Lease())
	}
	m.Unlock()
	if m.Lease() != nil || !m.TryLock() {
		t.Error("it is not free")
	}
	m.Unlock()
}
