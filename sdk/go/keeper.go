package leasehold

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"leasehold.example/sdk/go/machine"
)

const (
	// lookAgain: timers stand still while the machine sleeps, so none of them is trusted for longer.
	lookAgain = 100 * time.Millisecond
	// askAgain is between two tries of a request that was not carried out.
	askAgain = 50 * time.Millisecond
	// renewAtLeast is how long the answer to a heartbeat is waited for, if half of the ttl is shorter.
	renewAtLeast = 5 * time.Second
)

// item is what is kept with each lease.
type item struct {
	payload *payload
	belief  *belief
	// acquired is told once: nil, or why not.
	acquired  chan error
	isSettled bool
	grant     grant
	released  chan error
	key       *machine.Key
}

// settle says what came of an acquire; false if nobody waits for it any more.
func (i *item) settle(err error) bool {
	if i.isSettled {
		return false
	}
	i.isSettled = true
	i.acquired <- err
	return true
}

func (i *item) isReleased(err error) {
	if i.released != nil {
		i.released <- err
		i.released = nil
	}
}

// keeper drives the machine. One goroutine wakes it in time, whatever the program around it does; whoever asks or hears
// something has it work under the lock.
type keeper struct {
	clock    Clock
	settings machine.Settings
	servers  []string
	access   *access

	ctx    context.Context
	cancel context.CancelFunc
	poke   chan struct{}

	mu             sync.Mutex
	machine        *machine.Machine
	pool           *pool
	link           int
	running        map[machine.Key]context.CancelFunc
	connecting     context.CancelFunc
	complaint      string
	unusable       error
	isVersionKnown bool
	isClosing      bool
	flushed        chan struct{}
	wakeAt         time.Duration
}

func newKeeper(servers []string, settings machine.Settings, access *access, clock Clock) *keeper {
	k := &keeper{clock: clock, settings: settings, servers: servers, access: access, poke: make(chan struct{}, 1)}
	k.complaint, k.flushed, k.wakeAt = "no server answered", make(chan struct{}), machine.Never
	k.running = map[machine.Key]context.CancelFunc{}
	k.ctx, k.cancel = context.WithCancel(context.Background())
	return k
}

// order takes the lock and starts the machine, which begins with the first order. The caller must unlock.
func (k *keeper) order() error {
	k.mu.Lock()
	if k.isClosing {
		k.mu.Unlock()
		return ErrClosed
	}
	if k.machine == nil {
		k.machine = machine.New(k.clock.Now(), k.servers, k.settings, machine.Random)
		k.pool = newPool(k.servers[0], k.access, k.settings.ConnectTimeout)
		k.act()
		go k.alarm()
	}
	return nil
}

// alarm wakes the machine in time.
func (k *keeper) alarm() {
	for {
		k.mu.Lock()
		k.machine.Wake(k.clock.Now())
		k.act()
		k.wakeAt = k.machine.NextWake()
		until := k.wakeAt - k.clock.Now()
		isIdle := k.wakeAt == machine.Never
		k.mu.Unlock()
		var rings <-chan time.Time
		if !isIdle {
			rings = time.After(max(0, min(until, lookAgain)))
		}
		select {
		case <-rings:
		case <-k.poke:
		case <-k.ctx.Done():
			return
		}
	}
}

// act does what the machine says, until it has nothing more to say.
func (k *keeper) act() {
	for action := k.machine.NextAction(); action != nil; action = k.machine.NextAction() {
		switch a := action.(type) {
		case machine.Connect:
			k.connect(a)
		case machine.Send:
			k.send(a)
		case machine.Cancel:
			k.cancelCall(a)
		case machine.Tell:
			k.tell(a)
		case machine.End:
			k.end(a.Data.(*item), a.How)
		}
	}
	if k.isClosing && k.machine.Len() == 0 {
		select {
		case <-k.flushed:
		default:
			close(k.flushed)
		}
	}
	if k.machine.NextWake() < k.wakeAt {
		select {
		case k.poke <- struct{}{}:
		default:
		}
	}
}

func (k *keeper) acquire(ctx context.Context, p *payload, ask machine.Ask, under *item) (*item, error) {
	var session *belief
	if under != nil {
		session = under.belief
	}
	i := &item{payload: p, belief: newBelief(ctx, k.clock, session), acquired: make(chan error, 1)}
	if err := k.order(); err != nil {
		i.belief.cancel(err)
		return nil, err
	}
	if k.unusable != nil {
		defer k.mu.Unlock()
		i.belief.cancel(k.unusable)
		return nil, k.unusable
	}
	if under != nil {
		ask.Session = under.key
	}
	key := k.machine.Acquire(k.clock.Now(), i, ask)
	i.key = &key
	k.act()
	k.mu.Unlock()
	var err error
	select {
	case err = <-i.acquired:
	case <-ctx.Done():
		// Whoever is interrupted leaves the queue, and leaves no lock behind.
		k.abandon(i)
		err = fmt.Errorf("leasehold: canceled: %w", context.Cause(ctx))
	}
	if err != nil {
		i.belief.cancel(err)
		return nil, err
	}
	return i, nil
}

// is says whether the machine still knows the item. The lock is held.
func (k *keeper) is(i *item) bool {
	known, _ := k.machine.Data(*i.key).(*item)
	return known == i
}

func (k *keeper) abandon(i *item) {
	if k.order() != nil {
		return
	}
	defer k.mu.Unlock()
	i.isSettled = true
	i.belief.isLost(LostByRelease, nil)
	if k.is(i) {
		k.machine.Abandon(k.clock.Now(), *i.key)
		k.act()
	}
}

// release gives it back; what came of it is told to the channel.
func (k *keeper) release(i *item) <-chan error {
	done := make(chan error, 1)
	if err := k.order(); err != nil {
		done <- err
		return done
	}
	defer k.mu.Unlock()
	if !k.is(i) {
		err := i.belief.err()
		if err == nil {
			err = &LeaseLostError{By: LostByLapse}
		}
		done <- err
		return done
	}
	i.released = done
	i.belief.isLost(LostByRelease, nil)
	if !k.machine.Release(k.clock.Now(), *i.key) {
		i.isReleased(&LeaseLostError{By: LostByLapse})
	}
	k.act()
	return done
}

// with does something to a lease that goes on.
func (k *keeper) with(i *item, what func(now time.Duration, key machine.Key)) error {
	if err := k.order(); err != nil {
		return err
	}
	defer k.mu.Unlock()
	if k.is(i) {
		what(k.clock.Now(), *i.key)
		k.act()
	}
	return nil
}

// close gives everything back and waits until the server has heard it; no longer than the client's patience.
func (k *keeper) close() {
	k.mu.Lock()
	isFirst := !k.isClosing
	k.isClosing = true
	if k.machine == nil {
		k.mu.Unlock()
		k.cancel()
		return
	}
	if isFirst {
		now := k.clock.Now()
		for _, key := range k.machine.Keys() {
			if i, isItem := k.machine.Data(key).(*item); isItem {
				i.belief.isLost(LostByRelease, nil)
				i.settle(ErrClosed)
			}
			k.machine.Abandon(now, key)
		}
		k.act()
	}
	k.mu.Unlock()
	if !isFirst {
		<-k.ctx.Done()
		return
	}
	select {
	case <-k.flushed:
	case <-time.After(k.settings.Patience):
	}
	// What could not be given back by then lapses by itself.
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, key := range k.machine.Keys() {
		if i, isItem := k.machine.Data(key).(*item); isItem {
			i.isReleased(&UnreachableError{"no answer came to the release; " + k.complaint, Unknown})
		}
	}
	k.cancel()
	k.pool.close()
}

// Connections and requests. The lock is held where nothing else is said.

func (k *keeper) connect(a machine.Connect) {
	if k.connecting != nil {
		k.connecting()
	}
	for _, cancel := range k.running {
		cancel()
	}
	clear(k.running)
	k.pool.close()
	k.pool = newPool(a.Address, k.access, k.settings.ConnectTimeout)
	k.link = a.Link
	var ctx context.Context
	ctx, k.connecting = context.WithCancel(k.ctx)
	go k.probe(ctx, a.Link, k.pool)
}

// probe runs without the lock.
func (k *keeper) probe(ctx context.Context, link int, to *pool) {
	err := to.probe(ctx)
	k.mu.Lock()
	defer k.mu.Unlock()
	if link != k.link {
		return
	}
	if err != nil {
		k.complaint = fmt.Sprintf("%s: %v", to.server, err)
		k.machine.Down(k.clock.Now(), link)
		k.act()
		return
	}
	k.machine.Up(k.clock.Now(), link)
	k.act()
	if !k.isVersionKnown {
		k.isVersionKnown = true
		go k.lookAtVersion(to)
	}
}

// lookAtVersion runs without the lock.
func (k *keeper) lookAtVersion(at *pool) {
	ctx, cancel := context.WithTimeout(k.ctx, k.settings.Patience)
	defer cancel()
	status, body, failure := at.send(ctx, asked{"GET", "/v1/version", nil}, false)
	var said struct{ API []string }
	isRead := failure == nil && status == 200 && json.Unmarshal(body, &said) == nil
	k.mu.Lock()
	defer k.mu.Unlock()
	if !isRead {
		k.isVersionKnown = false
	} else if len(said.API) > 0 && !slices.Contains(said.API, "v1") {
		k.unusable = usage("%s does not speak v1 of the interface, only %s", at.server, strings.Join(said.API, ", "))
	}
}

func (k *keeper) send(a machine.Send) {
	i, isItem := k.machine.Data(a.Key).(*item)
	if !isItem {
		return
	}
	ctx, cancel := context.WithCancel(k.ctx)
	if a.Request.Kind == machine.Renew {
		cancel()
		standing, _ := i.belief.current()
		ctx, cancel = context.WithTimeout(k.ctx, max(standing.TTL/2, renewAtLeast))
	}
	k.running[a.Call] = cancel
	go k.exchange(ctx, cancel, a, i, i.payload.asks(a.Request, i.grant), k.pool)
}

// exchange runs without the lock.
func (k *keeper) exchange(ctx context.Context, cancel context.CancelFunc, a machine.Send, i *item, asks []asked, to *pool) {
	defer cancel()
	status, body, failure := sendEach(ctx, to, asks, a.Request.Kind != machine.Acquire)
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, isAwaited := k.running[a.Call]; !isAwaited {
		return
	}
	delete(k.running, a.Call)
	now := k.clock.Now()
	if failure != nil {
		k.complaint = failure.said
		k.machine.Failed(now, a.Call, failure.failure)
		k.act()
		return
	}
	answer, got := i.payload.read(a.Request, status, body)
	if answer == nil {
		k.complaint = fmt.Sprintf("%s: something that is no Leasehold server answered with %d", to.server, status)
		k.machine.Failed(now, a.Call, machine.Unknown)
	} else {
		if got != nil {
			i.grant = *got
		}
		// The machine follows whatever leader it is told of, so it is not told of one that must not be followed.
		if refused, isRefused := answer.(machine.Refused); isRefused && refused.Problem.Leader != "" {
			refused.Problem.Leader = k.access.leader(k.machine.Server(), refused.Problem.Leader)
		}
		k.machine.Answer(now, a.Call, answer)
	}
	k.act()
}

// sendEach sends one after the other, and returns what came of the first that was refused, or else of the last.
func sendEach(ctx context.Context, to *pool, asks []asked, isReserved bool) (status int, body []byte, failure *noAnswer) {
	isRefused := false
	for _, one := range asks {
		gotStatus, gotBody, failed := to.send(ctx, one, isReserved)
		if failed != nil {
			return 0, nil, failed
		}
		if !isRefused {
			status, body = gotStatus, gotBody
		}
		isRefused = isRefused || gotStatus < 200 || gotStatus > 299
	}
	return status, body, nil
}

func (k *keeper) cancelCall(a machine.Cancel) {
	// A request that is canceled closes its connection, and the server takes it out of the queue.
	if cancel, isRunning := k.running[a.Call]; isRunning {
		delete(k.running, a.Call)
		cancel()
		k.machine.Failed(k.clock.Now(), a.Call, machine.Unknown)
	}
}

// ask asks the server in use, without the lock. What was not carried out, or only reads, is asked again while patience
// lasts.
func (k *keeper) ask(ctx context.Context, one asked) (int, []byte, error) {
	until := k.clock.Now() + k.settings.Patience
	for {
		if err := k.order(); err != nil {
			return 0, nil, err
		}
		to, unusable := k.pool, k.unusable
		k.mu.Unlock()
		if unusable != nil {
			return 0, nil, unusable
		}
		status, body, err, isPassing := k.askOnce(ctx, to, one)
		if ctx.Err() != nil {
			return 0, nil, fmt.Errorf("leasehold: canceled: %w", context.Cause(ctx))
		}
		if !isPassing || k.clock.Now() >= until {
			return status, body, err
		}
		if pause(ctx, askAgain) != nil {
			continue
		}
		k.suspect(false, to.server)
	}
}

func (k *keeper) askOnce(ctx context.Context, to *pool, one asked) (status int, body []byte, err error, isPassing bool) {
	limited, cancel := context.WithTimeout(ctx, k.settings.Patience+waitIn(one.path))
	defer cancel()
	stop := context.AfterFunc(k.ctx, cancel)
	defer stop()
	status, body, failure := to.send(limited, one, false)
	if failure != nil {
		if k.ctx.Err() != nil {
			return 0, nil, ErrClosed, false
		}
		return 0, nil, failure.unreachable(), failure.failure == machine.Unsent || one.method == "GET"
	}
	problem := (*RefusedError)(nil)
	if status < 200 || status > 299 {
		problem = readProblem(status, body)
	}
	return status, body, nil, problem != nil && problem.Code == "not_leader"
}

// suspect: another server may do better than this one.
func (k *keeper) suspect(onlyIfIdle bool, server string) {
	if k.order() != nil {
		return
	}
	defer k.mu.Unlock()
	if k.machine.Server() != server {
		return
	}
	if onlyIfIdle {
		k.machine.SuspectIfIdle(k.clock.Now())
	} else {
		k.machine.Suspect(k.clock.Now())
	}
	k.act()
}

func pause(ctx context.Context, length time.Duration) error {
	select {
	case <-time.After(length):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Telling. The lock is held.

func (k *keeper) tell(a machine.Tell) {
	i, isItem := k.machine.Data(a.Key).(*item)
	if !isItem {
		return
	}
	switch a.News {
	case machine.NewsRenewed:
		i.belief.isStanding(a.Standing)
	case machine.NewsJeopardy:
		i.belief.isInJeopardy()
	case machine.NewsGranted:
		i.belief.isStanding(a.Standing)
		if !i.settle(nil) {
			k.machine.Abandon(k.clock.Now(), a.Key)
		}
	case machine.NewsGaveUp:
		i.settle(&UnreachableError{"no answer came in time; " + k.complaint, Unknown})
	}
}

func (k *keeper) end(i *item, how machine.Ended) {
	problem := ofMachine(how.Problem)
	by, err := LostByLapse, error(nil)
	switch how.Kind {
	case machine.EndLost:
		by = LostBy(how.Loss)
		err = &LeaseLostError{by, problem}
	case machine.EndNotReleased:
		by = LostByServer
		err = &LeaseLostError{by, problem}
	case machine.EndReleaseUnanswered:
		err = &UnreachableError{"no answer came to the release; " + k.complaint, Unknown}
	case machine.EndRefused:
		err = problem.kind()
	case machine.EndUnreachable:
		err = &UnreachableError{k.complaint, NotApplied}
	default:
		i.belief.isLost(LostByRelease, nil)
		i.settle(ErrClosed)
		i.isReleased(nil)
		return
	}
	i.belief.isLost(by, problem)
	i.settle(err)
	i.isReleased(err)
}

// isPassing says whether the server is away, and may be back soon.
func isPassing(err error) bool {
	var refused *RefusedError
	return errors.Is(err, ErrUnreachable) || (errors.As(err, &refused) && refused.Status == 503)
}
